//! SQLite's errors as a caller sees them: the conversion has to be where [`StoreError`] is.

use rusqlite::ErrorCode;

use super::{Errno, StoreError};

impl From<rusqlite::Error> for StoreError {
    fn from(error: rusqlite::Error) -> Self {
        let is_damage = |code| code == rusqlite::ffi::SQLITE_IOERR_DATA;
        if error.sqlite_error().is_some_and(|error| is_damage(error.extended_code)) {
            let reason =
                "a page of the database is damaged (the log names it); `ctxbench doctor --store` lists what is lost";
            return StoreError::storage(Errno::IO, reason);
        }
        let errno = match error.sqlite_error_code() {
            Some(ErrorCode::DiskFull) => Errno::NOSPC,
            Some(ErrorCode::ReadOnly) => Errno::ROFS,
            Some(ErrorCode::OutOfMemory) => Errno::NOMEM,
            Some(ErrorCode::TooBig) => Errno::FBIG,
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => Errno::BUSY,
            _ => Errno::IO,
        };
        // Without the text of the statement, which has up to 60 lines.
        let reason = match &error {
            rusqlite::Error::SqlInputError { msg, .. } => msg.clone(),
            error => error.to_string(),
        };
        StoreError::storage(errno, format!("SQLite: {reason}"))
    }
}
