//! Failures of the engine in a row: the log has each kind once.

use std::mem::{Discriminant, discriminant};

use s3::objects::Fault;
use s3::session::SessionError;

/// The kind of the last failure.
#[derive(Debug, Default)]
pub(super) struct LastFailure(Option<(Discriminant<SessionError>, Option<Discriminant<Fault>>)>);

impl LastFailure {
    /// Notes a failure; whether it is of another kind than the one before. Failures of one kind name other requests.
    pub(super) fn is_other(&mut self, error: &SessionError) -> bool {
        let fault = match error {
            SessionError::Fault(fault) => Some(discriminant(fault)),
            _ => None,
        };
        let kind = Some((discriminant(error), fault));
        std::mem::replace(&mut self.0, kind) != kind
    }
}

#[cfg(test)]
mod tests {
    use s3::session::BrokenLog;

    use super::*;

    #[test]
    fn a_log_has_each_kind_of_failure_once_in_a_row() {
        let unknown = |reason: &str| SessionError::from(Fault::Unknown(reason.to_owned()));
        let mut last = LastFailure::default();
        assert!(last.is_other(&unknown("PUT a")));
        assert!(!last.is_other(&unknown("PUT b")));
        assert!(last.is_other(&SessionError::Broken(BrokenLog::Gone(7))));
        assert!(last.is_other(&Fault::Refused("PUT c".to_owned()).into()));
    }
}
