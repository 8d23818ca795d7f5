//! An incoming body: a file that is not visible yet, and its checksums.

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use futures::StreamExt;
use s3s::checksum::ChecksumHasher;
use s3s::crypto::{Checksum as _, Md5};
use s3s::dto::{Checksum, ChecksumAlgorithm, StreamingBlob};
use s3s::{S3Error, S3Result, TrailingHeaders, s3_error};

/// A body that is being written. Dropping it removes the file unless it was kept.
#[derive(Debug)]
pub(crate) struct IncomingBody {
    pub(crate) file: File,
    path: PathBuf,
    size: u64,
    kept: bool,
}

impl IncomingBody {
    /// Creates a file at `path`.
    pub(crate) fn create(path: PathBuf) -> io::Result<Self> {
        let mut options = File::options();
        let file = options.read(true).write(true).create_new(true).mode(0o600).open(&path)?;
        Ok(Self { file, path, size: 0, kept: false })
    }

    /// Appends to the body.
    pub(crate) fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all(bytes)?;
        self.size += bytes.len() as u64;
        Ok(())
    }

    /// Appends all of `source` to the body.
    pub(crate) fn copy(&mut self, source: &mut impl io::Read) -> io::Result<()> {
        self.size += io::copy(source, &mut self.file)?;
        Ok(())
    }

    /// Length of the body in bytes.
    pub(crate) fn size(&self) -> u64 {
        self.size
    }

    /// Path of the file.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Renames the file to its final name and keeps it.
    pub(crate) fn keep(mut self, name: &Path) -> io::Result<()> {
        std::fs::rename(&self.path, name)?;
        self.kept = true;
        Ok(())
    }
}

impl Drop for IncomingBody {
    fn drop(&mut self) {
        if !self.kept {
            // The next start removes files that are left over.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// Checksums that the client declares for a body, in headers or trailers.
#[derive(Debug)]
pub(crate) struct Claims {
    pub(crate) content_md5: Option<String>,
    pub(crate) checksum: Checksum,
    pub(crate) algorithm: Option<ChecksumAlgorithm>,
    pub(crate) trailers: Option<TrailingHeaders>,
    /// The `x-amz-trailer` header: the checksums that follow the body.
    pub(crate) announced: Option<String>,
}

/// Checksums that were computed from a body.
#[derive(Debug)]
pub(crate) struct Digests {
    pub(crate) md5: [u8; 16],
    pub(crate) checksum: Checksum,
}

impl Claims {
    /// A hasher, if a checksum with this algorithm must be computed.
    fn hashed<T: Default>(&self, algorithm: &str, claimed: &Option<String>) -> Option<T> {
        let header = format!("x-amz-checksum-{algorithm}");
        let is_asked = |asked: &ChecksumAlgorithm| asked.as_str().eq_ignore_ascii_case(algorithm);
        let mut announced = self.announced.iter().flat_map(|names| names.split(','));
        let is_needed = claimed.is_some()
            || self.algorithm.as_ref().is_some_and(is_asked)
            || announced.any(|name| name.trim().eq_ignore_ascii_case(&header));
        is_needed.then(T::default)
    }

    fn hasher(&self) -> ChecksumHasher {
        let claimed = &self.checksum;
        ChecksumHasher {
            crc32: self.hashed("crc32", &claimed.checksum_crc32),
            crc32c: self.hashed("crc32c", &claimed.checksum_crc32c),
            sha1: self.hashed("sha1", &claimed.checksum_sha1),
            sha256: self.hashed("sha256", &claimed.checksum_sha256),
            crc64nvme: self.hashed("crc64nvme", &claimed.checksum_crc64nvme),
        }
    }

    /// Compares the declared checksums, including trailers, with the computed ones.
    fn check(&self, found: &Digests) -> S3Result<()> {
        let trailers = self.trailers.as_ref().and_then(TrailingHeaders::take);
        let claimed = |before: &Option<String>, name: &str| {
            let after = trailers.as_ref().and_then(|trailers| trailers.get(name));
            let after = after.and_then(|value| value.to_str().ok());
            after.map(str::to_owned).or_else(|| before.clone())
        };
        let (said, is) = (&self.checksum, &found.checksum);
        for (algorithm, said, is) in [
            ("crc32", &said.checksum_crc32, &is.checksum_crc32),
            ("crc32c", &said.checksum_crc32c, &is.checksum_crc32c),
            ("sha1", &said.checksum_sha1, &is.checksum_sha1),
            ("sha256", &said.checksum_sha256, &is.checksum_sha256),
            ("crc64nvme", &said.checksum_crc64nvme, &is.checksum_crc64nvme),
        ] {
            let name = &format!("x-amz-checksum-{algorithm}");
            if let Some(said) = claimed(said, name)
                && is.as_ref() != Some(&said)
            {
                return Err(s3_error!(BadDigest, "{name} does not fit the body"));
            }
        }
        if let Some(said) = &self.content_md5
            && *said != base64(&found.md5)
        {
            return Err(s3_error!(BadDigest, "Content-MD5 does not fit the body"));
        }
        Ok(())
    }
}

/// Writes a body as it arrives, and checks it when it is complete.
///
/// Writes block this task, because the page cache is faster than a thread pool.
pub(crate) async fn receive(
    incoming: &mut IncomingBody,
    body: Option<StreamingBlob>,
    claims: Claims,
) -> S3Result<Digests> {
    let mut body = body.ok_or_else(|| s3_error!(IncompleteBody))?;
    let (mut md5, mut hasher) = (Md5::new(), claims.hasher());
    while let Some(bytes) = body.next().await {
        let bytes = bytes.map_err(|error| S3Error::with_source(s3s::S3ErrorCode::IncompleteBody, error))?;
        md5.update(&bytes);
        hasher.update(&bytes);
        incoming.write(&bytes).map_err(S3Error::internal_error)?;
    }
    let found = Digests { md5: md5.finalize(), checksum: hasher.finalize() };
    claims.check(&found)?;
    Ok(found)
}

/// Bytes in base64, as in `Content-MD5`.
fn base64(bytes: &[u8]) -> String {
    use base64::Engine as _;
    base64::engine::general_purpose::STANDARD.encode(bytes)
}
