//! One version of an object: a file with its body, followed by a footer with its attributes.
//!
//! Body and footer share one file, so that a version exists with all its attributes or not at all.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use serde::{Deserialize, Serialize};

/// The last bytes of every complete file.
const MAGIC: &[u8; 8] = b"ctxb-s3\n";

/// Bytes after the footer: the footer's length and [`MAGIC`].
const TRAILER: u64 = 4 + MAGIC.len() as u64;

/// Metadata that a client sets on an object and reads back.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Attributes {
    pub(crate) content_type: Option<String>,
    pub(crate) content_encoding: Option<String>,
    pub(crate) content_disposition: Option<String>,
    pub(crate) content_language: Option<String>,
    pub(crate) cache_control: Option<String>,
    pub(crate) user: Option<HashMap<String, String>>,
}

/// One version of one object; as JSON, the footer after its body.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Object {
    #[serde(skip)]
    pub(crate) file: PathBuf,
    pub(crate) key: String,
    pub(crate) size: u64,
    pub(crate) e_tag: String,
    pub(crate) modified: SystemTime,
    pub(crate) attributes: Attributes,
}

impl Object {
    /// Appends the footer to a file that holds the body.
    pub(crate) fn append(&self, file: &mut File) -> io::Result<()> {
        let mut bytes = serde_json::to_vec(self)?;
        let length = u32::try_from(bytes.len()).map_err(io::Error::other)?;
        bytes.extend_from_slice(&length.to_le_bytes());
        bytes.extend_from_slice(MAGIC);
        file.write_all(&bytes)
    }

    /// Reads an object from the footer of its complete file.
    pub(crate) fn read(path: &Path) -> io::Result<Self> {
        let damaged = |what: &str| {
            let path = path.display();
            io::Error::new(
                io::ErrorKind::InvalidData,
                format!("{path} is not an object of this server: {what}; remove it to continue without it"),
            )
        };
        let file = File::open(path)?;
        let length = file.metadata()?.len();
        let at = length.checked_sub(TRAILER).ok_or_else(|| damaged("it is too short"))?;
        let mut trailer = [0; TRAILER as usize];
        file.read_exact_at(&mut trailer, at)?;
        let [a, b, c, d, magic @ ..] = trailer;
        if magic != *MAGIC {
            return Err(damaged("its last bytes are not a footer"));
        }
        let footer_length = u32::from_le_bytes([a, b, c, d]);
        let at = at.checked_sub(footer_length.into()).ok_or_else(|| damaged("its footer is longer than the file"))?;
        let mut bytes = vec![0; footer_length as usize];
        file.read_exact_at(&mut bytes, at)?;
        let object: Self = serde_json::from_slice(&bytes).map_err(|error| damaged(&error.to_string()))?;
        if object.size != at {
            return Err(damaged("the length of its body differs from its footer"));
        }
        Ok(Self { file: path.to_owned(), ..object })
    }
}
