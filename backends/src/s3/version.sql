-- The version that the last object of a key had: another of that key goes on from there.
CREATE TABLE IF NOT EXISTS s3_version (
  key     TEXT PRIMARY KEY,
  version INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TRIGGER IF NOT EXISTS s3_object_gone AFTER DELETE ON s3_object
BEGIN
  INSERT INTO s3_version VALUES (old.key, old.version)
    ON CONFLICT (key) DO UPDATE SET version = max(version, excluded.version);
END;

-- And its entity tag: another that has the same is told to others, who would take it for the one that they know.
CREATE TABLE IF NOT EXISTS s3_last_etag (
  key  TEXT PRIMARY KEY,
  etag TEXT NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TRIGGER IF NOT EXISTS s3_object_gone_etag AFTER DELETE ON s3_object
BEGIN
  INSERT INTO s3_last_etag VALUES (old.key, old.etag)
    ON CONFLICT (key) DO UPDATE SET etag = excluded.etag;
END;
