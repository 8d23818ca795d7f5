//! Publishing the readable mirror: what it holds is decided in [`s3::mirror`].

use bytes::Bytes;
use s3::client::{Bucket, Client, MirrorClient};
use s3::config::{MirrorMode, S3Config};
use s3::mirror::{Files, MirrorFile, files, plan, publish};
use s3::session::SessionError;
use s3::tree::Tree;

use super::{Inner, tables};
use crate::sqlite::held;
use crate::store::Result;

/// The mirror of one mount.
#[derive(Debug)]
pub(super) struct Mirror {
    client: MirrorClient,
    mode: MirrorMode,
    /// What the bucket has, as far as this mount knows.
    published: Files,
}

impl Mirror {
    /// The mirror of a mount that begins with `base`; `None` where nothing is mirrored.
    pub(super) fn new(bucket: &Bucket, config: &S3Config, base: &Tree) -> Option<Self> {
        if config.mirror == MirrorMode::Off || config.seal.is_some() {
            return None;
        }
        Some(Self {
            client: MirrorClient::new(bucket, config),
            mode: config.mirror,
            published: files(base, config.mirror),
        })
    }

    /// Publishes what has changed up to commit `head`. Changes of others since the last time are among it: the host that
    /// committed last leaves a mirror of everything before.
    pub(super) async fn write(
        &mut self,
        inner: &Inner,
        objects: &Client,
        base: &Tree,
        head: u64,
    ) -> std::result::Result<(), SessionError> {
        let current = files(base, self.mode);
        let plan = plan(&self.published, &current);
        let local = |file: &MirrorFile| read(inner, file).ok().flatten();
        publish(&self.client, objects, &plan, head, &local).await?;
        self.published = current;
        Ok(())
    }
}

/// The content of a file that is here; [`publish`] checks whether it is the one that was committed.
fn read(inner: &Inner, file: &MirrorFile) -> Result<Option<Bytes>> {
    let db = inner.store.db();
    let Some(ino) = tables::ino_of(&db, file.node)? else {
        return Ok(None);
    };
    if inner.placeholders.contains(ino) {
        return Ok(None);
    }
    let mut bytes = Vec::new();
    held::read(&db, ino, 0, file.content.size as usize, &mut bytes)?;
    Ok(Some(bytes.into()))
}
