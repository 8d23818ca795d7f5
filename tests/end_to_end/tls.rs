//! An S3 server behind TLS, with a trusted and an untrusted certificate.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::common::{Mount, Succeeds, ctxbench, embedded, has, mountable, set_server, stderr, words};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

/// A certificate for 127.0.0.1 that only these tests use:
/// `openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -keyout key.pem -out certificate.pem
/// -days 36500 -subj '/CN=ctxbench test' -addext subjectAltName=IP:127.0.0.1 -addext basicConstraints=critical,CA:FALSE`
fn certificate() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/end_to_end/tls_certificates/certificate.pem")
}

/// Terminates TLS and forwards connections to the server at `plain`. Returns the port.
async fn relay(plain: String) -> u16 {
    let chain = CertificateDer::pem_file_iter(certificate()).unwrap();
    let chain = chain.collect::<Result<Vec<_>, _>>().unwrap();
    let key = PrivateKeyDer::from_pem_file(certificate().with_file_name("key.pem")).unwrap();
    let config = ServerConfig::builder().with_no_client_auth();
    let acceptor = TlsAcceptor::from(Arc::new(config.with_single_cert(chain, key).unwrap()));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((connection, _)) = listener.accept().await {
            let (acceptor, plain) = (acceptor.clone(), plain.clone());
            tokio::spawn(async move {
                // A client that does not trust the certificate closes the connection.
                let Ok(mut secure) = acceptor.accept(connection).await else {
                    return;
                };
                let mut server = TcpStream::connect(plain).await.unwrap();
                let _ = tokio::io::copy_bidirectional(&mut secure, &mut server).await;
            });
        }
    });
    port
}

#[test]
fn a_mount_uses_a_server_behind_tls_only_if_it_trusts_the_certificate() {
    let Some(scratch) = mountable() else { return };
    let (runtime, _server, access) = embedded(&scratch.dir("server"), servers::Quirk::None);
    let plain = access.endpoint.strip_prefix("http://").unwrap().to_owned();
    let port = runtime.block_on(relay(plain));
    let command = |trusted: &Path, mount: &Path| {
        let mut command = ctxbench(words("mount s3 --agent-id alice --cache"));
        command.arg(mount.with_extension("db")).arg(mount);
        let endpoint = format!("https://127.0.0.1:{port}");
        set_server(&mut command, &endpoint, &access.access_key, &access.secret_key).env("SSL_CERT_FILE", trusted);
        command
    };

    let nobody = scratch.path().join("nobody.pem");
    fs::write(&nobody, "").unwrap();
    let refused = command(&nobody, &scratch.dir("refused")).output().unwrap();
    assert_eq!(refused.status.code(), Some(1), "{}", stderr(&refused));
    let said = stderr(&refused);
    let reason = "has an untrusted certificate";
    has(&said, &[reason, "fix: set SSL_CERT_FILE"]);

    let dir = scratch.dir("trusted");
    let mount = Mount::of(command(&certificate(), &dir), &dir);
    fs::write(dir.join("note.md"), "over TLS").unwrap();
    ctxbench(["s3", "sync"]).arg(&dir).succeeds();
    mount.end();
    let other = scratch.dir("other");
    let mount = Mount::of(command(&certificate(), &other), &other);
    let read = fs::read_to_string(other.join("note.md")).unwrap();
    assert_eq!(read, "over TLS");
    mount.end();
}
