//! Tests that need direct access to the service: slow bodies, wrong digests, preconditions of uploads.

#![allow(clippy::unwrap_used, reason = "tests")]

use http::{Extensions, HeaderMap, Method, Uri};
use s3s::S3ErrorCode;
use tokio::sync::oneshot;

use super::*;

fn request<T>(input: T) -> S3Request<T> {
    S3Request {
        input,
        method: Method::GET,
        uri: Uri::from_static("/"),
        headers: HeaderMap::new(),
        extensions: Extensions::new(),
        credentials: None,
        region: None,
        service: None,
        trailing_headers: None,
    }
}

fn service(dir: &std::path::Path) -> Service {
    let store = Store::open(dir).unwrap();
    store.create_bucket("b").unwrap();
    Service::new(store, Quirk::None)
}

fn put_input(body: StreamingBlob) -> PutObjectInput {
    let mut input = PutObjectInput::builder();
    input.set_bucket("b".to_owned());
    input.set_key("k".to_owned());
    input.set_body(Some(body));
    input.build().unwrap()
}

fn whole(bytes: &'static [u8]) -> StreamingBlob {
    Body::from(Bytes::from_static(bytes)).into()
}

async fn read(service: &Service) -> Vec<u8> {
    let mut input = GetObjectInput::builder();
    input.set_bucket("b".to_owned());
    input.set_key("k".to_owned());
    let got = service.get_object(request(input.build().unwrap()));
    let mut body = got.await.unwrap().output.body.unwrap();
    let mut bytes = Vec::new();
    while let Some(piece) = futures::StreamExt::next(&mut body).await {
        bytes.extend_from_slice(&piece.unwrap());
    }
    bytes
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_read_does_not_wait_for_a_slow_write_of_the_same_key() {
    let scratch = tempfile::tempdir().unwrap();
    let service = Arc::new(service(scratch.path()));
    let put = service.put_object(request(put_input(whole(b"before"))));
    put.await.unwrap();
    let (finish, rest) = oneshot::channel::<Bytes>();
    let body = stream::unfold(Some(rest), |rest| async { Some((rest?.await, None)) });
    let slow = tokio::spawn({
        let service = Arc::clone(&service);
        async move {
            let input = put_input(StreamingBlob::wrap(body));
            service.put_object(request(input)).await.unwrap();
        }
    });
    for _ in 0..1000 {
        assert_eq!(read(&service).await, b"before");
    }
    assert!(!slow.is_finished());
    finish.send(Bytes::from_static(b"after")).unwrap();
    slow.await.unwrap();
    assert_eq!(read(&service).await, b"after");
}

#[tokio::test]
async fn a_body_with_a_wrong_digest_is_refused() {
    let scratch = tempfile::tempdir().unwrap();
    let service = service(scratch.path());
    let mut wrong_md5 = put_input(whole(b"body"));
    wrong_md5.content_md5 = Some("1B2M2Y8AsgTpgAmY7PhCfg==".to_owned());
    let mut wrong_crc = put_input(whole(b"body"));
    wrong_crc.checksum_crc32 = Some("AAAAAA==".to_owned());
    for wrong in [wrong_md5, wrong_crc] {
        let error = service.put_object(request(wrong)).await.unwrap_err();
        assert_eq!(*error.code(), S3ErrorCode::BadDigest);
    }
    assert!(service.store.get("b", "k").is_err());
    let mut right = put_input(whole(b""));
    right.content_md5 = Some("1B2M2Y8AsgTpgAmY7PhCfg==".to_owned());
    service.put_object(request(right)).await.unwrap();
}

#[tokio::test]
async fn a_multipart_upload_keeps_its_precondition() {
    let scratch = tempfile::tempdir().unwrap();
    let service = service(scratch.path());
    let begin = async || {
        let mut input = CreateMultipartUploadInput::builder();
        input.set_bucket("b".to_owned());
        input.set_key("k".to_owned());
        let begun = service.create_multipart_upload(request(input.build().unwrap()));
        let id = begun.await.unwrap().output.upload_id.unwrap();
        let mut part = UploadPartInput::builder();
        part.set_bucket("b".to_owned());
        part.set_key("k".to_owned());
        part.set_upload_id(id.clone());
        part.set_part_number(1);
        part.set_body(Some(whole(b"part")));
        let sent = service.upload_part(request(part.build().unwrap()));
        (id, sent.await.unwrap().output.e_tag)
    };
    let complete = async |id: &str, e_tag: Option<ETag>, if_none_match| {
        let mut input = CompleteMultipartUploadInput::builder();
        input.set_bucket("b".to_owned());
        input.set_key("k".to_owned());
        input.set_upload_id(id.to_owned());
        input.set_if_none_match(if_none_match);
        let part = CompletedPart { e_tag, part_number: Some(1), ..Default::default() };
        input.set_multipart_upload(Some(CompletedMultipartUpload { parts: Some(vec![part]) }));
        let completed = service.complete_multipart_upload(request(input.build().unwrap()));
        completed.await.map(|done| done.output.e_tag.unwrap())
    };
    let absent = Some(ETagCondition::Any);
    let (id, part) = begin().await;
    let wrong = Some(ETag::Strong("wrong".to_owned()));
    let error = complete(&id, wrong, absent.clone()).await.unwrap_err();
    assert_eq!(*error.code(), S3ErrorCode::InvalidPart);
    let e_tag = complete(&id, part.clone(), absent.clone()).await.unwrap();
    assert!(e_tag.value().ends_with("-1"), "{e_tag:?}");
    let error = complete(&id, part, absent.clone()).await.unwrap_err();
    assert_eq!(*error.code(), S3ErrorCode::NoSuchUpload);
    let (id, part) = begin().await;
    let error = complete(&id, part.clone(), absent).await.unwrap_err();
    assert_eq!(*error.code(), S3ErrorCode::PreconditionFailed);
    // A refused upload still exists, and can be completed without the precondition.
    complete(&id, part, None).await.unwrap();
    assert_eq!(read(&service).await, b"part");
}
