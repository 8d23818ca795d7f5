//! Multipart uploads. The end of the server discards incomplete ones.

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io::Read;

use inputs::hex;
use parking_lot::Mutex;
use s3s::crypto::{Checksum, Md5};
use s3s::dto::CompletedPart;
use s3s::{S3Error, S3Result, s3_error};

use super::incoming::IncomingBody;
use super::object::Attributes;

/// Smallest size of a part that is not the last, in bytes.
const SMALLEST_PART: u64 = 5 * 1024 * 1024;

/// The highest part number.
const LAST_PART: i32 = 10_000;

/// One part, in a file of its own until the upload is completed.
#[derive(Debug)]
pub(crate) struct Part {
    pub(crate) body: IncomingBody,
    pub(crate) md5: [u8; 16],
}

#[derive(Debug)]
struct Upload {
    bucket: String,
    key: String,
    attributes: Attributes,
    parts: BTreeMap<i32, Part>,
}

/// The multipart uploads in progress.
#[derive(Debug, Default)]
pub(crate) struct Uploads(Mutex<HashMap<String, Upload>>);

impl Uploads {
    fn with<T>(
        &self,
        (bucket, key, id): (&str, &str, &str),
        ask: impl FnOnce(&mut Upload) -> S3Result<T>,
    ) -> S3Result<T> {
        let mut uploads = self.0.lock();
        match uploads.get_mut(id) {
            Some(upload) if upload.bucket == bucket && upload.key == key => ask(upload),
            _ => Err(s3_error!(NoSuchUpload)),
        }
    }

    /// Begins an upload.
    pub(crate) fn begin(&self, id: String, bucket: &str, key: &str, attributes: Attributes) {
        let upload = Upload { bucket: bucket.to_owned(), key: key.to_owned(), attributes, parts: BTreeMap::new() };
        let mut uploads = self.0.lock();
        uploads.insert(id, upload);
    }

    /// Whether the upload accepts a part with this number.
    pub(crate) fn expects(&self, upload: (&str, &str, &str), number: i32) -> S3Result<()> {
        if !(1..=LAST_PART).contains(&number) {
            return Err(s3_error!(InvalidArgument, "a part's number is 1 to {LAST_PART}"));
        }
        self.with(upload, |_| Ok(()))
    }

    /// Adds or replaces a part.
    pub(crate) fn add(&self, upload: (&str, &str, &str), number: i32, part: Part) -> S3Result<()> {
        self.with(upload, |upload| {
            upload.parts.insert(number, part);
            Ok(())
        })
    }

    /// Concatenates the listed parts in `whole`. Returns the entity tag and the attributes.
    pub(crate) fn assemble(
        &self,
        upload: (&str, &str, &str),
        listed: &[CompletedPart],
        whole: &mut IncomingBody,
    ) -> S3Result<(String, Attributes)> {
        // Files are opened under the lock and copied without it.
        let (files, md5s, attributes) = self.with(upload, |upload| {
            let mut files: Vec<(File, u64)> = Vec::new();
            let mut md5s = Md5::new();
            let mut last = 0;
            for (index, listed_part) in listed.iter().enumerate() {
                let number = listed_part.part_number.ok_or_else(|| s3_error!(InvalidPart))?;
                if number <= last {
                    return Err(s3_error!(InvalidPartOrder));
                }
                last = number;
                let part = upload.parts.get(&number).ok_or_else(|| s3_error!(InvalidPart))?;
                if let Some(e_tag) = &listed_part.e_tag
                    && e_tag.value() != hex(part.md5)
                {
                    return Err(s3_error!(InvalidPart));
                }
                if index + 1 < listed.len() && part.body.size() < SMALLEST_PART {
                    return Err(s3_error!(EntityTooSmall));
                }
                md5s.update(&part.md5);
                let file = File::open(part.body.path()).map_err(S3Error::internal_error)?;
                files.push((file, part.body.size()));
            }
            Ok((files, md5s, upload.attributes.clone()))
        })?;
        if files.is_empty() {
            return Err(s3_error!(MalformedXML, "an upload has at least one part"));
        }
        let e_tag = format!("{}-{}", hex(md5s.finalize()), files.len());
        for (file, size) in files {
            whole.copy(&mut file.take(size)).map_err(S3Error::internal_error)?;
        }
        Ok((e_tag, attributes))
    }

    /// Removes an upload with its parts.
    pub(crate) fn end(&self, upload: (&str, &str, &str)) -> S3Result<()> {
        self.with(upload, |_| Ok(()))?;
        let mut uploads = self.0.lock();
        uploads.remove(upload.2);
        Ok(())
    }
}
