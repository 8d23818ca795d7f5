//! The servers that the workspaces of one process share: S3 servers, and a language model's.
//!
//! The binary makes one [`Services`], hands it to the registry of backends, and stops it at its end.

pub mod model;
pub mod s3;

/// The servers of one process. Each is started at first use.
#[derive(Debug, Default)]
pub struct Services {
    /// S3 servers.
    pub s3: s3::Servers,
    /// The installed language model.
    pub model: model::LocalModel,
}

impl Services {
    /// Ends every server that was started, and waits until they have ended. A later use starts them again.
    pub fn stop(&self) {
        self.s3.stop();
        self.model.stop();
    }
}
