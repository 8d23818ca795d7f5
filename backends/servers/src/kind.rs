//! The supported S3 servers: their names and the search for their programs.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Environment variable with the path of a MinIO program.
const MINIO_VARIABLE: &str = "CTXBENCH_MINIO";

/// Prefix of the MinIO module's version inside its program.
const MINIO_MODULE: &[u8] = b"\tgithub.com/minio/minio\tv";

/// A server that can be started.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ServerKind {
    /// The embedded server of this program.
    Embedded,
    /// `minio server`.
    Minio,
    /// `weed server -s3`.
    Seaweedfs,
    /// `rclone serve s3`.
    Rclone,
}

/// Why a server cannot be started here, and the fix.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{kind} is not installed: {reason}; {fix}")]
pub struct MissingServer {
    /// The server.
    pub kind: ServerKind,
    /// Where the search looked.
    pub reason: String,
    /// How to install it.
    pub fix: String,
}

/// A server that is available here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundServer {
    kind: ServerKind,
    program: Option<PathBuf>,
}

impl fmt::Display for ServerKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.label())
    }
}

impl ServerKind {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Embedded, Self::Minio, Self::Seaweedfs, Self::Rclone];

    /// Its name on the command line and in file names.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Embedded => "embedded",
            Self::Minio => "minio",
            Self::Seaweedfs => "seaweedfs",
            Self::Rclone => "rclone",
        }
    }

    /// Its name in texts for people.
    #[must_use]
    pub fn label(self) -> &'static str {
        match self {
            Self::Embedded => "embedded S3",
            Self::Minio => "MinIO",
            Self::Seaweedfs => "SeaweedFS",
            Self::Rclone => "rclone serve s3",
        }
    }

    /// Searches for the server's program.
    ///
    /// # Errors
    /// [`MissingServer`], with the searched places and the fix.
    pub fn find(self) -> Result<FoundServer, MissingServer> {
        let found = |program| FoundServer { kind: self, program };
        let (program, below, fix) = match self {
            Self::Embedded => return Ok(found(None)),
            Self::Minio => ("minio", "minio", "`make minio` builds it (three minutes, needs Go)"),
            Self::Seaweedfs => ("weed", "peers/bin", "`make peers` installs it"),
            Self::Rclone => ("rclone", "peers/bin", "`make peers` installs it"),
        };
        let not_found = |reason: String| MissingServer { kind: self, reason, fix: fix.to_owned() };
        // A program that the user names must be that one and no other.
        if self == Self::Minio
            && let Some(named) = std::env::var_os(MINIO_VARIABLE)
        {
            let named = PathBuf::from(named);
            if !inputs::is_program(&named) {
                let named = named.display();
                return Err(not_found(format!("{MINIO_VARIABLE} names {named}, which is not a program")));
            }
            return Ok(found(Some(named)));
        }
        let reason = || format!("no `{program}` in target/{below} or on the PATH");
        let installed = inputs::find_program(program, below);
        installed.map(|program| found(Some(program))).ok_or_else(|| not_found(reason()))
    }
}

impl FoundServer {
    /// Which server it is.
    #[must_use]
    pub fn kind(&self) -> ServerKind {
        self.kind
    }

    /// Path of its program; `None` for the embedded server.
    #[must_use]
    pub fn program(&self) -> Option<&Path> {
        self.program.as_deref()
    }

    /// Asks the program for its version.
    ///
    /// # Errors
    /// If the program does not print one.
    pub fn version(&self) -> io::Result<String> {
        let Some(program) = &self.program else {
            return Ok(concat!("ctxbench ", env!("CARGO_PKG_VERSION")).to_owned());
        };
        let argument = match self.kind {
            ServerKind::Seaweedfs | ServerKind::Rclone => "version",
            ServerKind::Embedded | ServerKind::Minio => "--version",
        };
        let output = Command::new(program).arg(argument).output()?;
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        let line = said.lines().next().unwrap_or_default().trim();
        let prefix = match self.kind {
            ServerKind::Minio => "minio version ",
            ServerKind::Rclone => "rclone ",
            _ => "version ",
        };
        let version = line.strip_prefix(prefix).unwrap_or(line);
        if !output.status.success() || version.is_empty() {
            let (program, status) = (program.display(), output.status);
            return Err(io::Error::other(format!("`{program} {argument}` printed no version ({status})")));
        }
        // MinIO from `go install` does not print its version, but contains the version of its module.
        if self.kind == ServerKind::Minio && version.starts_with("DEVELOPMENT") {
            return module_version(program);
        }
        Ok(version.to_owned())
    }
}

/// The version of MinIO's module, as the Go linker writes it into the program.
fn module_version(program: &Path) -> io::Result<String> {
    let bytes = std::fs::read(program)?;
    let at = memchr::memmem::find(&bytes, MINIO_MODULE).ok_or_else(|| {
        let program = program.display();
        io::Error::other(format!("{program} has no version number; build it with `make minio`"))
    })?;
    let version = &bytes[at + MINIO_MODULE.len() - 1..];
    let end = version.iter().position(|byte| byte.is_ascii_whitespace()).unwrap_or(0);
    Ok(String::from_utf8_lossy(&version[..end]).into_owned())
}
