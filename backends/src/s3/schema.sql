-- What the local cache of a bucket has beside the tables of a ctxbench file system. docs/S3.md explains them.

-- Which bucket this is the cache of, and what has to outlive a mount: the endpoint, who writes, ….
CREATE TABLE s3_setting (
  name  TEXT PRIMARY KEY,
  value TEXT NOT NULL
) STRICT, WITHOUT ROWID;

-- Changes are journalled under the number of the batch that will take them up. While `is_applying`, what
-- changes came from the bucket and is not journalled.
CREATE TABLE s3_clock (
  one         INTEGER PRIMARY KEY CHECK (one = 1),
  batch       INTEGER NOT NULL,
  is_applying INTEGER NOT NULL
) STRICT;
INSERT INTO s3_clock VALUES (1, 1, 0);

-- The journal: inodes and names that the bucket does not know of yet.
CREATE TABLE s3_dirty_inode (
  ino   INTEGER PRIMARY KEY,
  batch INTEGER NOT NULL
) STRICT;
CREATE TABLE s3_dirty_name (
  parent INTEGER NOT NULL,
  name   BLOB NOT NULL,
  batch  INTEGER NOT NULL,
  PRIMARY KEY (parent, name)
) STRICT, WITHOUT ROWID;

-- The object that a name's file is in, as it was when last seen or written.
CREATE TABLE s3_object (
  parent  INTEGER NOT NULL,
  name    BLOB NOT NULL,
  key     TEXT NOT NULL UNIQUE,
  ino     INTEGER NOT NULL,
  etag    TEXT NOT NULL,
  version INTEGER NOT NULL,
  meta    TEXT NOT NULL,               -- JSON: what the object says of the file
  PRIMARY KEY (parent, name)
) STRICT, WITHOUT ROWID;
CREATE INDEX s3_object_ino ON s3_object (ino);

-- What the keys of the files in a directory begin with, after `agents/<agent>/`.
CREATE TABLE s3_directory (
  ino    INTEGER PRIMARY KEY,
  prefix TEXT NOT NULL UNIQUE,
  entry  TEXT                          -- JSON: what the manifest says of it, if it does
) STRICT;

-- Files whose content is in the bucket only; the parts of large ones that have been fetched.
CREATE TABLE s3_stub (
  ino  INTEGER PRIMARY KEY,
  key  TEXT NOT NULL,
  etag TEXT NOT NULL,
  size INTEGER NOT NULL,               -- of the object
  meta TEXT NOT NULL
) STRICT;
CREATE TABLE s3_part (
  ino  INTEGER NOT NULL,
  part INTEGER NOT NULL,
  PRIMARY KEY (ino, part)
) STRICT, WITHOUT ROWID;

-- Objects that were written with the content they had: their entity tag does not tell others, so the manifest will.
CREATE TABLE s3_touched (
  key     TEXT PRIMARY KEY,
  version INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- Who wrote what, until it is in the bucket.
CREATE TABLE s3_audit (
  line INTEGER PRIMARY KEY,
  json TEXT NOT NULL
) STRICT;

CREATE TRIGGER s3_inode_changed AFTER UPDATE ON inode
WHEN (new.size <> old.size OR new.mode <> old.mode OR new.uid <> old.uid OR new.gid <> old.gid
      OR (new.mtime <> old.mtime AND new.mode & 61440 <> 16384))
  AND (SELECT is_applying FROM s3_clock WHERE one = 1) = 0
BEGIN
  INSERT INTO s3_dirty_inode VALUES (new.ino, (SELECT batch FROM s3_clock WHERE one = 1))
    ON CONFLICT (ino) DO UPDATE SET batch = excluded.batch WHERE batch <> excluded.batch;
END;

-- What is emptied needs nothing from the bucket any more.
CREATE TRIGGER s3_inode_emptied AFTER UPDATE ON inode
WHEN new.size = 0 AND old.size <> 0 AND (SELECT is_applying FROM s3_clock WHERE one = 1) = 0
BEGIN
  DELETE FROM s3_stub WHERE ino = new.ino;
  DELETE FROM s3_part WHERE ino = new.ino;
END;

CREATE TRIGGER s3_inode_gone AFTER DELETE ON inode
BEGIN
  DELETE FROM s3_stub WHERE ino = old.ino;
  DELETE FROM s3_part WHERE ino = old.ino;
  DELETE FROM s3_dirty_inode WHERE ino = old.ino;
END;

CREATE TRIGGER s3_name_added AFTER INSERT ON dirent
WHEN (SELECT is_applying FROM s3_clock WHERE one = 1) = 0
BEGIN
  INSERT INTO s3_dirty_name VALUES (new.parent, new.name, (SELECT batch FROM s3_clock WHERE one = 1))
    ON CONFLICT (parent, name) DO UPDATE SET batch = excluded.batch WHERE batch <> excluded.batch;
END;

CREATE TRIGGER s3_name_changed AFTER UPDATE ON dirent
WHEN (SELECT is_applying FROM s3_clock WHERE one = 1) = 0
BEGIN
  INSERT INTO s3_dirty_name VALUES (new.parent, new.name, (SELECT batch FROM s3_clock WHERE one = 1))
    ON CONFLICT (parent, name) DO UPDATE SET batch = excluded.batch WHERE batch <> excluded.batch;
END;

CREATE TRIGGER s3_name_removed AFTER DELETE ON dirent
WHEN (SELECT is_applying FROM s3_clock WHERE one = 1) = 0
BEGIN
  INSERT INTO s3_dirty_name VALUES (old.parent, old.name, (SELECT batch FROM s3_clock WHERE one = 1))
    ON CONFLICT (parent, name) DO UPDATE SET batch = excluded.batch WHERE batch <> excluded.batch;
END;

CREATE TRIGGER s3_xattr_set AFTER INSERT ON xattr
WHEN (SELECT is_applying FROM s3_clock WHERE one = 1) = 0
BEGIN
  INSERT INTO s3_dirty_inode VALUES (new.ino, (SELECT batch FROM s3_clock WHERE one = 1))
    ON CONFLICT (ino) DO UPDATE SET batch = excluded.batch WHERE batch <> excluded.batch;
END;
CREATE TRIGGER s3_xattr_changed AFTER UPDATE ON xattr
WHEN (SELECT is_applying FROM s3_clock WHERE one = 1) = 0
BEGIN
  INSERT INTO s3_dirty_inode VALUES (new.ino, (SELECT batch FROM s3_clock WHERE one = 1))
    ON CONFLICT (ino) DO UPDATE SET batch = excluded.batch WHERE batch <> excluded.batch;
END;
CREATE TRIGGER s3_xattr_removed AFTER DELETE ON xattr
WHEN (SELECT is_applying FROM s3_clock WHERE one = 1) = 0
BEGIN
  INSERT INTO s3_dirty_inode VALUES (old.ino, (SELECT batch FROM s3_clock WHERE one = 1))
    ON CONFLICT (ino) DO UPDATE SET batch = excluded.batch WHERE batch <> excluded.batch;
END;
