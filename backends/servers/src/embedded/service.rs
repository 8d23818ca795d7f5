//! The S3 operations on the store.
//!
//! Not implemented: versions, tags, access lists, listing of uploads and parts, copying into a part.

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use bytes::Bytes;
use futures::stream;
use inputs::hex;
use s3s::dto::*;
use s3s::{Body, S3, S3Error, S3Request, S3Response, S3Result, s3_error};

use super::Quirk;
use super::condition::Condition;
use super::incoming::{Claims, receive};
use super::listing::{LONGEST_PAGE, Query, url_encoded};
use super::multipart::{Part, Uploads};
use super::object::{Attributes, Object};
use super::store::Store;
use crate::access::random_hex;

/// Bodies up to this length are read at once, longer ones in pieces of this length.
const PIECE: u64 = 256 * 1024;

/// S3 over a store.
#[derive(Debug)]
pub(crate) struct Service {
    store: Store,
    uploads: Uploads,
    quirk: Quirk,
}

impl Service {
    pub(crate) fn new(store: Store, quirk: Quirk) -> Self {
        Self { store, uploads: Uploads::default(), quirk }
    }

    /// The precondition of a write, or none if the quirk ignores it.
    fn of_write(&self, condition: Condition) -> Condition {
        match self.quirk {
            Quirk::IgnoresConditions => Condition::default(),
            _ => condition,
        }
    }

    /// Refuses what the bucket policy denies: a write of a log without a precondition, and its deletion.
    fn check_policy(&self, key: &str, condition: Option<&Condition>) -> S3Result<()> {
        let is_log = self.quirk == Quirk::ProtectsLogs && key.contains("/.ctx/");
        match condition.and_then(|condition| condition.if_none_match.as_ref()) {
            None if is_log => Err(s3_error!(AccessDenied, "the bucket policy denies it")),
            _ => Ok(()),
        }
    }
}

fn length(size: u64) -> i64 {
    // No file is longer than `i64::MAX`.
    i64::try_from(size).unwrap_or(i64::MAX)
}

fn limit(max_keys: Option<i32>) -> S3Result<usize> {
    let Some(max_keys) = max_keys else {
        return Ok(LONGEST_PAGE);
    };
    let max_keys = usize::try_from(max_keys).map_err(|_| s3_error!(InvalidArgument, "max-keys is a number from 0"))?;
    Ok(max_keys.min(LONGEST_PAGE))
}

/// A continuation token for a key with any characters.
fn token(key: &str) -> String {
    hex(key.as_bytes())
}

fn key_of(token: &str) -> S3Result<String> {
    let bytes = hex_simd::decode_to_vec(token).ok();
    bytes
        .and_then(|bytes| String::from_utf8(bytes).ok())
        .ok_or_else(|| s3_error!(InvalidArgument, "the continuation token is invalid"))
}

/// The body of an open file: at once if short, else piece by piece.
fn body(file: File, range: std::ops::Range<u64>) -> S3Result<StreamingBlob> {
    let piece = move |file: &File, at: u64| {
        let mut bytes = vec![0; PIECE.min(range.end - at) as usize];
        file.read_exact_at(&mut bytes, at).map(|()| Bytes::from(bytes))
    };
    if range.end - range.start <= PIECE {
        let bytes = piece(&file, range.start).map_err(S3Error::internal_error)?;
        return Ok(Body::from(bytes).into());
    }
    let pieces = stream::try_unfold((file, range.start), move |(file, at)| async move {
        if at >= range.end {
            return Ok::<_, std::io::Error>(None);
        }
        let bytes = piece(&file, at)?;
        let next = at + bytes.len() as u64;
        Ok(Some((bytes, (file, next))))
    });
    Ok(StreamingBlob::wrap(pieces))
}

/// The attributes of a request, whose fields have the same names in every input type.
macro_rules! attributes {
    ($input:expr) => {
        Attributes {
            content_type: $input.content_type,
            content_encoding: $input.content_encoding,
            content_disposition: $input.content_disposition,
            content_language: $input.content_language,
            cache_control: $input.cache_control,
            user: $input.metadata,
        }
    };
}

/// The answer to a received body, whose fields have the same names in every output type.
macro_rules! uploaded {
    ($output:ident, $found:expr) => {
        S3Response::new($output {
            e_tag: Some(ETag::Strong(hex($found.md5))),
            checksum_crc32: $found.checksum.checksum_crc32,
            checksum_crc32c: $found.checksum.checksum_crc32c,
            checksum_crc64nvme: $found.checksum.checksum_crc64nvme,
            checksum_sha1: $found.checksum.checksum_sha1,
            checksum_sha256: $found.checksum.checksum_sha256,
            ..Default::default()
        })
    };
}

/// The answer to a read, without its body: the fields that have the same names in every output type.
macro_rules! described {
    ($output:ident, $object:expr) => {{
        let attributes = $object.attributes.clone();
        $output {
            content_length: Some(length($object.size)),
            accept_ranges: Some("bytes".to_owned()),
            e_tag: Some(ETag::Strong($object.e_tag.clone())),
            last_modified: Some($object.modified.into()),
            content_type: attributes.content_type,
            content_encoding: attributes.content_encoding,
            content_disposition: attributes.content_disposition,
            content_language: attributes.content_language,
            cache_control: attributes.cache_control,
            metadata: attributes.user,
            ..Default::default()
        }
    }};
}

/// The checksums that a request declares for its body.
macro_rules! claims {
    ($request:expr) => {
        Claims {
            content_md5: $request.input.content_md5.take(),
            checksum: Checksum {
                checksum_crc32: $request.input.checksum_crc32.take(),
                checksum_crc32c: $request.input.checksum_crc32c.take(),
                checksum_crc64nvme: $request.input.checksum_crc64nvme.take(),
                checksum_sha1: $request.input.checksum_sha1.take(),
                checksum_sha256: $request.input.checksum_sha256.take(),
                ..Default::default()
            },
            algorithm: $request.input.checksum_algorithm.take(),
            trailers: $request.trailing_headers.take(),
            announced: $request.headers.get("x-amz-trailer").and_then(|value| value.to_str().ok()).map(str::to_owned),
        }
    };
}

fn newer(object: &Object, than: &Timestamp) -> bool {
    // HTTP dates have whole seconds.
    let seconds = |time: &Timestamp| {
        let mut text = Vec::new();
        time.format(TimestampFormat::EpochSeconds, &mut text).ok()?;
        let text = String::from_utf8(text).ok()?;
        text.split('.').next()?.parse::<i64>().ok()
    };
    seconds(&object.modified.into()) > seconds(than)
}

#[async_trait::async_trait]
impl S3 for Service {
    async fn create_bucket(&self, request: S3Request<CreateBucketInput>) -> S3Result<S3Response<CreateBucketOutput>> {
        self.store.create_bucket(&request.input.bucket)?;
        Ok(S3Response::new(CreateBucketOutput { location: Some(format!("/{}", request.input.bucket)) }))
    }

    async fn delete_bucket(&self, request: S3Request<DeleteBucketInput>) -> S3Result<S3Response<DeleteBucketOutput>> {
        self.store.delete_bucket(&request.input.bucket)?;
        Ok(S3Response::new(DeleteBucketOutput::default()))
    }

    async fn head_bucket(&self, request: S3Request<HeadBucketInput>) -> S3Result<S3Response<HeadBucketOutput>> {
        self.store.has_bucket(&request.input.bucket)?;
        Ok(S3Response::new(HeadBucketOutput::default()))
    }

    async fn get_bucket_location(
        &self,
        request: S3Request<GetBucketLocationInput>,
    ) -> S3Result<S3Response<GetBucketLocationOutput>> {
        // The default output has no location, which means us-east-1.
        self.store.has_bucket(&request.input.bucket)?;
        Ok(S3Response::new(GetBucketLocationOutput::default()))
    }

    async fn list_buckets(&self, _: S3Request<ListBucketsInput>) -> S3Result<S3Response<ListBucketsOutput>> {
        let buckets = self.store.buckets().into_iter();
        let buckets = buckets.map(|(name, created)| Bucket {
            name: Some(name),
            creation_date: Some(created.into()),
            ..Default::default()
        });
        Ok(S3Response::new(ListBucketsOutput { buckets: Some(buckets.collect()), ..Default::default() }))
    }

    async fn list_objects_v2(
        &self,
        request: S3Request<ListObjectsV2Input>,
    ) -> S3Result<S3Response<ListObjectsV2Output>> {
        let input = request.input;
        let after = match &input.continuation_token {
            Some(token) => Some(key_of(token)?),
            None => input.start_after.clone(),
        };
        let limit = limit(input.max_keys)?;
        let query = Query {
            prefix: input.prefix.as_deref().unwrap_or_default(),
            delimiter: input.delimiter.as_deref(),
            after: after.as_deref(),
            limit,
        };
        let page = self.store.list(&input.bucket, query)?;
        let is_encoded = input.encoding_type.is_some();
        let name = |key: String| if is_encoded { url_encoded(&key) } else { key };
        // A page has at most 1,000 entries.
        let count = page.objects.len() + page.common_prefixes.len();
        let contents = page.objects.into_iter();
        let contents = contents.map(|(key, object)| s3s::dto::Object {
            key: Some(name(key)),
            size: Some(length(object.size)),
            e_tag: Some(ETag::Strong(object.e_tag.clone())),
            last_modified: Some(object.modified.into()),
            storage_class: Some(ObjectStorageClass::from_static(ObjectStorageClass::STANDARD)),
            ..Default::default()
        });
        let prefixes = page.common_prefixes.into_iter();
        let prefixes = prefixes.map(|prefix| CommonPrefix { prefix: Some(name(prefix)) });
        Ok(S3Response::new(ListObjectsV2Output {
            key_count: i32::try_from(count).ok(),
            max_keys: i32::try_from(limit).ok(),
            is_truncated: Some(page.next.is_some()),
            next_continuation_token: page.next.as_deref().map(token),
            contents: Some(contents.collect()),
            common_prefixes: Some(prefixes.collect()),
            continuation_token: input.continuation_token,
            delimiter: input.delimiter,
            encoding_type: input.encoding_type,
            name: Some(input.bucket),
            prefix: Some(input.prefix.unwrap_or_default()),
            start_after: input.start_after,
            ..Default::default()
        }))
    }

    async fn list_objects(&self, request: S3Request<ListObjectsInput>) -> S3Result<S3Response<ListObjectsOutput>> {
        let marker = request.input.marker.clone();
        let listed = self.list_objects_v2(request.map_input(Into::into)).await?;
        Ok(listed.map_output(|listed| {
            let next = listed.next_continuation_token;
            let next = next.and_then(|token| key_of(&token).ok());
            let encoded = listed.encoding_type.is_some();
            ListObjectsOutput {
                max_keys: listed.max_keys,
                is_truncated: listed.is_truncated,
                next_marker: next.map(|next| if encoded { url_encoded(&next) } else { next }),
                contents: listed.contents,
                common_prefixes: listed.common_prefixes,
                delimiter: listed.delimiter,
                encoding_type: listed.encoding_type,
                name: listed.name,
                prefix: listed.prefix,
                marker: Some(marker.unwrap_or_default()),
                ..Default::default()
            }
        }))
    }

    async fn put_object(&self, mut request: S3Request<PutObjectInput>) -> S3Result<S3Response<PutObjectOutput>> {
        self.store.has_bucket(&request.input.bucket)?;
        let claims = claims!(request);
        let input = request.input;
        let condition = self.of_write(Condition { if_match: input.if_match, if_none_match: input.if_none_match });
        self.check_policy(&input.key, Some(&condition))?;
        let mut incoming = self.store.incoming()?;
        let found = receive(&mut incoming, input.body, claims).await?;
        let attributes = attributes!(input);
        self.store.commit(&input.bucket, &input.key, incoming, hex(found.md5), attributes, &condition)?;
        Ok(uploaded!(PutObjectOutput, found))
    }

    async fn get_object(&self, request: S3Request<GetObjectInput>) -> S3Result<S3Response<GetObjectOutput>> {
        let input = request.input;
        let (object, file) = self.store.open_object(&input.bucket, &input.key)?;
        check_read(
            &object,
            input.if_match,
            input.if_none_match,
            input.if_modified_since.as_ref(),
            input.if_unmodified_since.as_ref(),
        )?;
        let (range, content_range) = match &input.range {
            None => (0..object.size, None),
            Some(asked) => {
                let range = asked.check(object.size)?;
                let (first, last) = (range.start, range.end.saturating_sub(1));
                let content_range = format!("bytes {first}-{last}/{}", object.size);
                (range, Some(content_range))
            }
        };
        Ok(S3Response::new(GetObjectOutput {
            content_length: Some(length(range.end - range.start)),
            body: Some(body(file, range)?),
            content_range,
            ..described!(GetObjectOutput, object)
        }))
    }

    async fn head_object(&self, request: S3Request<HeadObjectInput>) -> S3Result<S3Response<HeadObjectOutput>> {
        let input = request.input;
        let object = self.store.get(&input.bucket, &input.key)?;
        check_read(
            &object,
            input.if_match,
            input.if_none_match,
            input.if_modified_since.as_ref(),
            input.if_unmodified_since.as_ref(),
        )?;
        Ok(S3Response::new(described!(HeadObjectOutput, object)))
    }

    async fn delete_object(&self, request: S3Request<DeleteObjectInput>) -> S3Result<S3Response<DeleteObjectOutput>> {
        let input = request.input;
        let condition = self.of_write(Condition { if_match: input.if_match, if_none_match: None });
        self.check_policy(&input.key, None)?;
        self.store.delete(&input.bucket, &input.key, &condition)?;
        Ok(S3Response::new(DeleteObjectOutput::default()))
    }

    async fn delete_objects(
        &self,
        request: S3Request<DeleteObjectsInput>,
    ) -> S3Result<S3Response<DeleteObjectsOutput>> {
        let input = request.input;
        self.store.has_bucket(&input.bucket)?;
        let (mut deleted, mut errors) = (Vec::new(), Vec::new());
        for object in input.delete.objects {
            let condition =
                self.of_write(Condition { if_match: object.e_tag.map(ETagCondition::ETag), if_none_match: None });
            let deleting = self.check_policy(&object.key, None);
            let deleting = deleting.and_then(|()| self.store.delete(&input.bucket, &object.key, &condition));
            match deleting {
                Ok(()) => deleted.push(DeletedObject { key: Some(object.key), ..Default::default() }),
                Err(error) => errors.push(Error {
                    code: Some(error.code().as_str().to_owned()),
                    message: error.message().map(str::to_owned),
                    key: Some(object.key),
                    version_id: None,
                }),
            }
        }
        let is_quiet = input.delete.quiet.unwrap_or(false);
        Ok(S3Response::new(DeleteObjectsOutput {
            deleted: (!is_quiet).then_some(deleted),
            errors: Some(errors),
            ..Default::default()
        }))
    }

    async fn copy_object(&self, request: S3Request<CopyObjectInput>) -> S3Result<S3Response<CopyObjectOutput>> {
        let input = request.input;
        let CopySource::Bucket { bucket, key, .. } = &input.copy_source else {
            return Err(s3_error!(NotImplemented, "only objects of a bucket are copied"));
        };
        self.store.has_bucket(&input.bucket)?;
        self.check_policy(&input.key, None)?;
        let (source, file) = self.store.open_object(bucket, key)?;
        let condition =
            Condition { if_match: input.copy_source_if_match, if_none_match: input.copy_source_if_none_match };
        condition.allows_write(Some(&source))?;
        let is_replaced =
            input.metadata_directive.is_some_and(|directive| directive.as_str() == MetadataDirective::REPLACE);
        let attributes = if is_replaced { attributes!(input) } else { source.attributes.clone() };
        let mut incoming = self.store.incoming()?;
        incoming.copy(&mut file.take(source.size)).map_err(S3Error::internal_error)?;
        let object = self.store.commit(
            &input.bucket,
            &input.key,
            incoming,
            source.e_tag.clone(),
            attributes,
            &Condition::default(),
        )?;
        Ok(S3Response::new(CopyObjectOutput {
            copy_object_result: Some(CopyObjectResult {
                e_tag: Some(ETag::Strong(object.e_tag.clone())),
                last_modified: Some(object.modified.into()),
                ..Default::default()
            }),
            ..Default::default()
        }))
    }

    async fn create_multipart_upload(
        &self,
        request: S3Request<CreateMultipartUploadInput>,
    ) -> S3Result<S3Response<CreateMultipartUploadOutput>> {
        let input = request.input;
        self.store.has_bucket(&input.bucket)?;
        let id = random_hex(16).map_err(S3Error::internal_error)?;
        let attributes = attributes!(input);
        self.uploads.begin(id.clone(), &input.bucket, &input.key, attributes);
        Ok(S3Response::new(CreateMultipartUploadOutput {
            bucket: Some(input.bucket),
            key: Some(input.key),
            upload_id: Some(id),
            ..Default::default()
        }))
    }

    async fn upload_part(&self, mut request: S3Request<UploadPartInput>) -> S3Result<S3Response<UploadPartOutput>> {
        let claims = claims!(request);
        let input = request.input;
        let upload = (&*input.bucket, &*input.key, &*input.upload_id);
        self.uploads.expects(upload, input.part_number)?;
        let mut incoming = self.store.incoming()?;
        let found = receive(&mut incoming, input.body, claims).await?;
        let part = Part { body: incoming, md5: found.md5 };
        self.uploads.add(upload, input.part_number, part)?;
        Ok(uploaded!(UploadPartOutput, found))
    }

    async fn complete_multipart_upload(
        &self,
        request: S3Request<CompleteMultipartUploadInput>,
    ) -> S3Result<S3Response<CompleteMultipartUploadOutput>> {
        let input = request.input;
        let upload = (&*input.bucket, &*input.key, &*input.upload_id);
        let parts = input.multipart_upload.and_then(|upload| upload.parts);
        let condition = self.of_write(Condition { if_match: input.if_match, if_none_match: input.if_none_match });
        self.check_policy(&input.key, Some(&condition))?;
        let mut whole = self.store.incoming()?;
        let (e_tag, attributes) = self.uploads.assemble(upload, &parts.unwrap_or_default(), &mut whole)?;
        let object = self.store.commit(&input.bucket, &input.key, whole, e_tag, attributes, &condition)?;
        self.uploads.end(upload)?;
        Ok(S3Response::new(CompleteMultipartUploadOutput {
            location: Some(format!("/{}/{}", input.bucket, input.key)),
            bucket: Some(input.bucket),
            key: Some(input.key),
            e_tag: Some(ETag::Strong(object.e_tag.clone())),
            ..Default::default()
        }))
    }

    async fn abort_multipart_upload(
        &self,
        request: S3Request<AbortMultipartUploadInput>,
    ) -> S3Result<S3Response<AbortMultipartUploadOutput>> {
        let input = request.input;
        self.uploads.end((&input.bucket, &input.key, &input.upload_id))?;
        Ok(S3Response::new(AbortMultipartUploadOutput::default()))
    }
}

/// Whether a read returns the object. An entity tag takes precedence over a date.
fn check_read(
    object: &Arc<Object>,
    if_match: Option<ETagCondition>,
    if_none_match: Option<ETagCondition>,
    if_modified_since: Option<&Timestamp>,
    if_unmodified_since: Option<&Timestamp>,
) -> S3Result<()> {
    let (by_match, by_none_match) = (if_match.is_some(), if_none_match.is_some());
    let condition = Condition { if_match, if_none_match };
    condition.allows_read(object)?;
    if !by_match
        && let Some(date) = if_unmodified_since
        && newer(object, date)
    {
        return Err(s3_error!(PreconditionFailed, "the object has changed"));
    }
    if !by_none_match
        && let Some(date) = if_modified_since
        && !newer(object, date)
    {
        return Err(s3_error!(NotModified));
    }
    Ok(())
}

#[cfg(test)]
mod tests;
