-- Requests that were sent, and whose answer is not known: the server may have done them, or may do them yet.

-- Contents that were sent for an object. They are noted in the transaction that takes up a batch, and go with the one
-- that notes what got there. When something else is to be there, `is_over`, and they may still come late.
CREATE TABLE IF NOT EXISTS s3_sent (
  id      INTEGER PRIMARY KEY,
  key     TEXT NOT NULL,
  sha256  TEXT NOT NULL,
  parent  INTEGER NOT NULL,
  name    BLOB NOT NULL,
  at      INTEGER NOT NULL,            -- nanoseconds since 1970
  is_over INTEGER NOT NULL,
  UNIQUE (key, sha256)
) STRICT;

-- Objects whose deletion was sent.
CREATE TABLE IF NOT EXISTS s3_deleting (
  key TEXT PRIMARY KEY,
  at  INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- Uploads in parts that have begun, and not ended.
CREATE TABLE IF NOT EXISTS s3_parts (
  key    TEXT NOT NULL,
  upload TEXT NOT NULL,
  PRIMARY KEY (key, upload)
) STRICT, WITHOUT ROWID;
