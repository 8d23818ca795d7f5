//! One object: a file's bytes, and what S3 does not know about a file.
//!
//! What S3 does not know stands in the object's metadata (`x-amz-meta-ctx-…`), and for Markdown files in
//! front matter before the content, too, where people and models can read it.

use std::collections::BTreeMap;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use md5::Md5;
use object_store::{Attribute, AttributeValue, Attributes};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::seal::{NotOurs, Seal};
use crate::store::{Attr, Kind, Timestamp};

/// The longest set of extended attributes that an object's metadata can hold, in bytes as encoded: S3 allows
/// 2 KiB for all metadata.
pub(super) const XATTRS_MAX: usize = 1200;

/// What stands before the content of a Markdown file begins so.
const OPENING: &str = "---\nctxbench:\n";
const CLOSING: &str = "---\n";

/// What is kept about a file beside its bytes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Meta {
    /// `st_mode`, type included.
    pub(super) mode: u32,
    pub(super) uid: u32,
    pub(super) gid: u32,
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(super) rdev: u32,
    /// Nanoseconds since 1970.
    pub(super) modified: i64,
    pub(super) created: i64,
    /// Counts up with every upload of this file.
    pub(super) version: u64,
    pub(super) writer: String,
    /// Of the content, in hexadecimal.
    pub(super) sha256: String,
    /// Bytes of content.
    pub(super) size: u64,
    /// Bytes before the content.
    #[serde(default, skip_serializing_if = "is_zero_u64")]
    pub(super) header: u64,
    /// The name as a component of a key, where the key ends in another.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) name: Option<String>,
    /// Extended attributes, both sides in base64.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) xattrs: BTreeMap<String, String>,
}

fn is_zero(value: &u32) -> bool {
    *value == 0
}

fn is_zero_u64(value: &u64) -> bool {
    *value == 0
}

/// A checksum as it is written in metadata.
pub(super) fn hex(digest: &[u8]) -> String {
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The SHA-256 of some content.
pub(super) fn checksum(content: &[u8]) -> String {
    hex(&Sha256::digest(content))
}

/// The MD5 of an object, which most servers give as the entity tag of what was put whole.
pub(super) fn md5(object: &[u8]) -> String {
    hex(&Md5::digest(object))
}

impl Meta {
    pub(super) fn new(attr: &Attr, version: u64, writer: &str, sha256: String, size: u64) -> Self {
        Self {
            mode: attr.kind.mode_bits() | u32::from(attr.permissions),
            uid: attr.uid,
            gid: attr.gid,
            rdev: attr.rdev,
            modified: attr.mtime.0,
            created: attr.btime.0,
            version,
            writer: writer.to_owned(),
            sha256,
            size,
            header: 0,
            name: None,
            xattrs: BTreeMap::new(),
        }
    }

    /// What an object of others says of itself: nothing but its size and time.
    pub(super) fn foreign(size: u64, modified: Timestamp, uid: u32, gid: u32) -> Self {
        Self {
            mode: 0o100_644,
            uid,
            gid,
            rdev: 0,
            modified: modified.0,
            created: modified.0,
            version: 0,
            writer: String::new(),
            sha256: String::new(),
            size,
            header: 0,
            name: None,
            xattrs: BTreeMap::new(),
        }
    }

    /// Whether anything of ours wrote it.
    pub(super) fn is_foreign(&self) -> bool {
        self.version == 0
    }

    pub(super) fn kind(&self) -> Kind {
        Kind::from_mode(self.mode).unwrap_or(Kind::File)
    }

    pub(super) fn permissions(&self) -> u16 {
        (self.mode & 0o7777) as u16
    }

    /// Adds extended attributes; false if they do not fit.
    pub(super) fn set_xattrs(&mut self, xattrs: &[(Vec<u8>, Vec<u8>)]) -> bool {
        let encoded: BTreeMap<String, String> = xattrs
            .iter()
            .map(|(name, value)| (STANDARD.encode(name), STANDARD.encode(value)))
            .collect();
        let length: usize = encoded.iter().map(|(a, b)| a.len() + b.len() + 6).sum();
        if length > XATTRS_MAX {
            return false;
        }
        self.xattrs = encoded;
        true
    }

    /// The extended attributes; what is no base64 is left out.
    pub(super) fn xattrs(&self) -> Vec<(Vec<u8>, Vec<u8>)> {
        let decode = |(name, value): (&String, &String)| {
            Some((STANDARD.decode(name).ok()?, STANDARD.decode(value).ok()?))
        };
        self.xattrs.iter().filter_map(decode).collect()
    }

    /// The front matter of a Markdown file.
    pub(super) fn front_matter(&self) -> String {
        let time = |nanos: i64| {
            jiff::Timestamp::from_nanosecond(nanos.into())
                .map_or_else(|_| nanos.to_string(), |time| format!("{time:.9}"))
        };
        format!(
            "{OPENING}  version: {}\n  writer: {}\n  modified: {}\n  created: {}\n  sha256: {}\n{CLOSING}",
            self.version,
            self.writer,
            time(self.modified),
            time(self.created),
            self.sha256
        )
    }

    /// Of the file that begins with its front matter: no checksum is of that.
    pub(super) fn with_front_matter(&self) -> Self {
        Self {
            size: self.size + self.header,
            header: 0,
            sha256: String::new(),
            ..self.clone()
        }
    }

    /// As object metadata.
    pub(super) fn attributes(&self, seal: Option<&Seal>) -> std::io::Result<Attributes> {
        let mut attributes = Attributes::new();
        let json = serde_json::to_vec(self)?;
        let mut set = |name: &'static str, value: String| {
            attributes.insert(
                Attribute::Metadata(name.into()),
                AttributeValue::from(value),
            );
        };
        if let Some(seal) = seal {
            set("ctx-sealed", STANDARD.encode(seal.seal(&json)?));
            return Ok(attributes);
        }
        set("ctx-version", self.version.to_string());
        set("ctx-writer", self.writer.clone());
        set("ctx-sha256", self.sha256.clone());
        set("ctx-mode", format!("{:o}", self.mode));
        set("ctx-owner", format!("{}:{}", self.uid, self.gid));
        set("ctx-modified", self.modified.to_string());
        set("ctx-created", self.created.to_string());
        set("ctx-size", self.size.to_string());
        set("ctx-header", self.header.to_string());
        if self.rdev != 0 {
            set("ctx-rdev", self.rdev.to_string());
        }
        if let Some(name) = &self.name {
            // A header holds ASCII only.
            set("ctx-name", STANDARD.encode(name));
        }
        if !self.xattrs.is_empty() {
            set("ctx-xattrs", serde_json::to_string(&self.xattrs)?);
        }
        Ok(attributes)
    }

    /// From object metadata; `None` if there is none of ours, or it is damaged.
    pub(super) fn from_attributes(attributes: &Attributes, seal: Option<&Seal>) -> Option<Self> {
        let get = |name: &'static str| {
            let value = attributes.get(&Attribute::Metadata(name.into()));
            value.map(|value| value.as_ref().to_owned())
        };
        if let Some(seal) = seal {
            let sealed = STANDARD.decode(get("ctx-sealed")?).ok()?;
            return serde_json::from_slice(&seal.open(&sealed).ok()?).ok();
        }
        let owner = get("ctx-owner")?;
        let (uid, gid) = owner.split_once(':')?;
        let name = get("ctx-name").and_then(|name| STANDARD.decode(name).ok());
        let xattrs = get("ctx-xattrs").and_then(|json| serde_json::from_str(&json).ok());
        Some(Self {
            mode: u32::from_str_radix(&get("ctx-mode")?, 8).ok()?,
            uid: uid.parse().ok()?,
            gid: gid.parse().ok()?,
            rdev: get("ctx-rdev")
                .and_then(|rdev| rdev.parse().ok())
                .unwrap_or(0),
            modified: get("ctx-modified")?.parse().ok()?,
            created: get("ctx-created")?.parse().ok()?,
            version: get("ctx-version")?.parse().ok()?,
            writer: get("ctx-writer")?,
            sha256: get("ctx-sha256")?,
            size: get("ctx-size")?.parse().ok()?,
            header: get("ctx-header")?.parse().ok()?,
            name: name.and_then(|name| String::from_utf8(name).ok()),
            xattrs: xattrs.unwrap_or_default(),
        })
    }
}

/// What the front matter at the start of an object says: its length, version and writer. For objects whose
/// metadata another tool has dropped.
pub(super) fn parse_front_matter(object: &[u8]) -> Option<(u64, u64, String)> {
    let head = &object[..object.len().min(1024)];
    let valid = head.utf8_chunks().next()?.valid();
    let rest = valid.strip_prefix(OPENING)?;
    let end = rest.find("\n---\n")? + 1;
    let field = |name: &str| {
        let lines = rest[..end].lines();
        let mut values = lines.filter_map(|line| line.trim().strip_prefix(name));
        values.next().map(str::trim)
    };
    let length = OPENING.len() + end + CLOSING.len();
    let version = field("version:")?.parse().ok()?;
    Some((length as u64, version, field("writer:")?.to_owned()))
}

/// The bytes before the content, of an object that begins with our front matter.
pub(super) fn front_matter_length(object: &[u8]) -> u64 {
    parse_front_matter(object).map_or(0, |(length, _, _)| length)
}

/// Opens an object's body if it is sealed.
pub(super) fn open(body: &[u8], seal: Option<&Seal>) -> Result<Vec<u8>, NotOurs> {
    match seal {
        Some(seal) => seal.open(body),
        None => Ok(body.to_vec()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn meta() -> Meta {
        let attr = Attr {
            ino: 2,
            kind: Kind::File,
            permissions: 0o640,
            nlink: 1,
            uid: 7,
            gid: 8,
            rdev: 0,
            size: 5,
            blocks: 8,
            atime: Timestamp(0),
            mtime: Timestamp(1_700_000_000_123_456_789),
            ctime: Timestamp(0),
            btime: Timestamp(-5),
        };
        let mut meta = Meta::new(&attr, 3, "alice@host", checksum(b"hello"), 5);
        assert!(meta.set_xattrs(&[(b"user.a".to_vec(), vec![0, 255])]));
        meta
    }

    #[test]
    fn metadata_comes_back_open_and_sealed() {
        let meta = meta();
        let open = meta.attributes(None).unwrap();
        assert_eq!(Meta::from_attributes(&open, None).as_ref(), Some(&meta));
        let seal = Seal::new(&[3; 32]);
        let sealed = meta.attributes(Some(&seal)).unwrap();
        assert_eq!(Meta::from_attributes(&sealed, Some(&seal)), Some(meta));
        assert!(!format!("{sealed:?}").contains("alice"));
        assert_eq!(Meta::from_attributes(&sealed, None), None);
        assert_eq!(Meta::from_attributes(&Attributes::new(), None), None);
    }

    #[test]
    fn front_matter_is_found_again_and_only_ours_is() {
        let mut object = meta().front_matter().into_bytes();
        let length = object.len() as u64;
        assert!(
            String::from_utf8_lossy(&object).contains("modified: 2023-11-14T22:13:20.123456789Z")
        );
        object.extend_from_slice(b"---\ntitle: mine\n---\nhello");
        let (found, version, writer) = parse_front_matter(&object).unwrap();
        assert_eq!((found, version, writer.as_str()), (length, 3, "alice@host"));
        assert_eq!(front_matter_length(b"---\ntitle: x\n---\n"), 0);
        assert_eq!(front_matter_length(b"---\nctxbench:\n  version: 1\n"), 0);
        assert_eq!(front_matter_length(b""), 0);
    }

    #[test]
    fn too_many_extended_attributes_are_refused() {
        let mut meta = meta();
        assert!(!meta.set_xattrs(&[(b"user.big".to_vec(), vec![1; 2000])]));
        assert_eq!(meta.xattrs(), [(b"user.a".to_vec(), vec![0, 255])]);
    }
}
