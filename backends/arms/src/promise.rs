//! Durability promises: which completed call makes data survive which failure.

use std::fmt;

/// A call whose return acknowledges data, from the weakest to the strongest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Acknowledgement {
    /// `write`, or any call that changes a name.
    Write,
    /// `close`.
    Close,
    /// `fsync` of the file, or of the directory for a name.
    Fsync,
    /// `ctxbench s3 sync`.
    Sync,
}

impl Acknowledgement {
    /// All variants, the weakest first.
    pub const ALL: [Self; 4] = [Self::Write, Self::Close, Self::Fsync, Self::Sync];

    /// Its name in results.
    pub fn name(self) -> &'static str {
        match self {
            Self::Write => "write",
            Self::Close => "close",
            Self::Fsync => "fsync",
            Self::Sync => "sync",
        }
    }

    /// The variant of that name.
    pub fn of_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|class| class.name() == name)
    }
}

impl fmt::Display for Acknowledgement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// For each failure, the weakest call after whose return data survives; `None` promises nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Promises {
    /// A killed daemon, or for a backend without one, a killed program.
    pub killed_daemon: Option<Acknowledgement>,
    /// Power loss: unwritten data is lost.
    pub power_loss: Option<Acknowledgement>,
    /// Loss of the machine and its disks.
    pub machine_loss: Option<Acknowledgement>,
}

impl Promises {
    /// The requirement of POSIX on any file system: `fsync` makes data durable.
    pub const POSIX: Self = Self {
        killed_daemon: Some(Acknowledgement::Fsync),
        power_loss: Some(Acknowledgement::Fsync),
        machine_loss: None,
    };

    /// Nothing survives.
    pub const NONE: Self = Self { killed_daemon: None, power_loss: None, machine_loss: None };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_are_ordered_and_named_once() {
        assert!(Acknowledgement::ALL.is_sorted());
        for class in Acknowledgement::ALL {
            assert_eq!(Acknowledgement::of_name(class.name()), Some(class));
        }
        assert_eq!(Acknowledgement::of_name("hope"), None);
    }
}
