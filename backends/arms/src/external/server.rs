//! The S3 server variables of a definition. The server is the one that our own `s3` backend uses.

use std::io;

use super::variables::Variables;
use crate::backend::WorkspaceConfig;
use crate::services::s3::{DistantServer, Servers, place};

/// The suffix of the name of a definition that uses the S3 server.
pub(super) const IN_NAME: &str = "-{s3_server}";

/// Starts the server if it is not running, and sets its variables.
pub(super) fn tell(
    servers: &Servers,
    server: DistantServer,
    config: &WorkspaceConfig,
    variables: &mut Variables,
) -> io::Result<()> {
    let address = servers.address(&config.program, server)?;
    let (access_key, secret_key) = address.credentials()?;
    variables.set("s3_server", server.wanted.name().to_owned());
    variables.set("s3_endpoint", address.endpoint);
    variables.set("s3_bucket", address.bucket);
    variables.set("s3_region", address.region);
    variables.set("s3_prefix", place(&config.dir));
    variables.set_secret("s3_access_key", access_key);
    variables.set_secret("s3_secret_key", secret_key);
    Ok(())
}
