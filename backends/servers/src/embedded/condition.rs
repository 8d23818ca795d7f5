//! Preconditions on entity tags, for writes and for reads.

use http::{HeaderMap, HeaderValue, header};
use s3s::dto::{ETag, ETagCondition};
use s3s::{S3Error, S3ErrorCode, S3Result, s3_error};

use super::object::Object;

/// `If-Match` and `If-None-Match` of a request.
#[derive(Debug, Default)]
pub(crate) struct Condition {
    pub(crate) if_match: Option<ETagCondition>,
    pub(crate) if_none_match: Option<ETagCondition>,
}

impl Condition {
    /// Whether a write may replace the existing object.
    pub(crate) fn allows_write(&self, existing: Option<&Object>) -> S3Result<()> {
        if let Some(wanted) = &self.if_match {
            let existing = existing.ok_or_else(|| s3_error!(NoSuchKey, "If-Match, but the object does not exist"))?;
            if !matches(wanted, existing) {
                return Err(s3_error!(PreconditionFailed, "the object has changed"));
            }
        }
        if let (Some(unwanted), Some(existing)) = (&self.if_none_match, existing)
            && matches(unwanted, existing)
        {
            return Err(s3_error!(PreconditionFailed, "there is an object already"));
        }
        Ok(())
    }

    /// Whether a read returns the object.
    pub(crate) fn allows_read(&self, object: &Object) -> S3Result<()> {
        if let Some(wanted) = &self.if_match
            && !matches(wanted, object)
        {
            return Err(s3_error!(PreconditionFailed, "the object has changed"));
        }
        if let Some(unwanted) = &self.if_none_match
            && matches(unwanted, object)
        {
            return Err(not_modified(object));
        }
        Ok(())
    }
}

fn matches(condition: &ETagCondition, object: &Object) -> bool {
    match condition {
        ETagCondition::Any => true,
        ETagCondition::ETag(wanted) => wanted.weak_cmp(&ETag::Strong(object.e_tag.clone())),
    }
}

/// 304 with the entity tag, which HTTP requires.
fn not_modified(object: &Object) -> S3Error {
    let mut error = S3Error::new(S3ErrorCode::NotModified);
    if let Ok(value) = HeaderValue::from_str(&format!("\"{}\"", object.e_tag)) {
        error.set_headers(HeaderMap::from_iter([(header::ETAG, value)]));
    }
    error
}
