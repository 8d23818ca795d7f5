-- What the cache of a bucket has beside the tables of a ctxbench file system. docs/S3.md explains them.

-- Which memory this is the cache of, and what must outlive a mount.
CREATE TABLE s3_setting (
  name  TEXT PRIMARY KEY,
  value TEXT NOT NULL
) STRICT, WITHOUT ROWID;

-- The head, and the number that changes are journalled under. While `is_adopting`, changes come from the log and are not
-- journalled.
CREATE TABLE s3_state (
  one         INTEGER PRIMARY KEY CHECK (one = 1),
  head        INTEGER NOT NULL,
  hash        BLOB NOT NULL,
  first       BLOB NOT NULL,
  batch       INTEGER NOT NULL,
  is_adopting INTEGER NOT NULL
) STRICT;
INSERT INTO s3_state VALUES (1, 0, zeroblob(32), zeroblob(32), 1, 0);

-- The sessions that this cache had; random numbers.
CREATE TABLE s3_writer (id INTEGER PRIMARY KEY) STRICT;

-- Commits that were sent as the one after the head, and whose answer is not known.
CREATE TABLE s3_intent (nonce BLOB PRIMARY KEY) STRICT, WITHOUT ROWID;

-- The identity of an inode in the log.
CREATE TABLE s3_identity (
  ino    INTEGER PRIMARY KEY,
  writer INTEGER NOT NULL,
  number INTEGER NOT NULL,
  UNIQUE (writer, number)
) STRICT;
INSERT INTO s3_identity VALUES (1, 0, 1);

-- The base: the tree after the head. `node` is postcard.
CREATE TABLE s3_base_node (
  writer INTEGER NOT NULL,
  number INTEGER NOT NULL,
  node   BLOB NOT NULL,
  PRIMARY KEY (writer, number)
) STRICT, WITHOUT ROWID;
CREATE TABLE s3_base_name (
  dir_writer INTEGER NOT NULL,
  dir_number INTEGER NOT NULL,
  name       BLOB NOT NULL,
  writer     INTEGER NOT NULL,
  number     INTEGER NOT NULL,
  PRIMARY KEY (dir_writer, dir_number, name)
) STRICT, WITHOUT ROWID;

-- Placeholders: chunks of 8 MiB whose bytes are in the bucket only. `chunk` is postcard.
CREATE TABLE s3_missing (
  ino   INTEGER NOT NULL,
  at    INTEGER NOT NULL,
  chunk BLOB NOT NULL,
  PRIMARY KEY (ino, at)
) STRICT, WITHOUT ROWID;

-- Bytes past the head of merged files, from the merge's transaction until they are in the files beside the database.
-- `start` counts from the end of the head.
CREATE TABLE s3_tail (
  ino   INTEGER NOT NULL,
  start INTEGER NOT NULL,
  bytes BLOB NOT NULL,
  PRIMARY KEY (ino, start)
) STRICT, WITHOUT ROWID;

-- The journal: inodes and names that may differ from the base.
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

-- Names in a directory change its times, which the log does not hold.
CREATE TRIGGER s3_inode_changed AFTER UPDATE ON inode
WHEN (new.mode <> old.mode OR new.uid <> old.uid OR new.gid <> old.gid
      OR (new.mode & 61440 <> 16384
          AND (new.ctime <> old.ctime OR new.mtime <> old.mtime OR new.size <> old.size)))
  AND (SELECT is_adopting FROM s3_state WHERE one = 1) = 0
BEGIN
  INSERT INTO s3_dirty_inode VALUES (new.ino, (SELECT batch FROM s3_state WHERE one = 1))
    ON CONFLICT (ino) DO UPDATE SET batch = excluded.batch WHERE batch <> excluded.batch;
END;

CREATE TRIGGER s3_inode_gone AFTER DELETE ON inode
BEGIN
  DELETE FROM s3_missing WHERE ino = old.ino;
  DELETE FROM s3_dirty_inode WHERE ino = old.ino;
END;

CREATE TRIGGER s3_name_added AFTER INSERT ON dirent
WHEN (SELECT is_adopting FROM s3_state WHERE one = 1) = 0
BEGIN
  INSERT INTO s3_dirty_name VALUES (new.parent, new.name, (SELECT batch FROM s3_state WHERE one = 1))
    ON CONFLICT (parent, name) DO UPDATE SET batch = excluded.batch WHERE batch <> excluded.batch;
END;
CREATE TRIGGER s3_name_changed AFTER UPDATE ON dirent
WHEN (SELECT is_adopting FROM s3_state WHERE one = 1) = 0
BEGIN
  INSERT INTO s3_dirty_name VALUES (old.parent, old.name, (SELECT batch FROM s3_state WHERE one = 1))
    ON CONFLICT (parent, name) DO UPDATE SET batch = excluded.batch WHERE batch <> excluded.batch;
  INSERT INTO s3_dirty_name VALUES (new.parent, new.name, (SELECT batch FROM s3_state WHERE one = 1))
    ON CONFLICT (parent, name) DO UPDATE SET batch = excluded.batch WHERE batch <> excluded.batch;
END;
CREATE TRIGGER s3_name_removed AFTER DELETE ON dirent
WHEN (SELECT is_adopting FROM s3_state WHERE one = 1) = 0
BEGIN
  INSERT INTO s3_dirty_name VALUES (old.parent, old.name, (SELECT batch FROM s3_state WHERE one = 1))
    ON CONFLICT (parent, name) DO UPDATE SET batch = excluded.batch WHERE batch <> excluded.batch;
END;

CREATE TRIGGER s3_xattr_set AFTER INSERT ON xattr
WHEN (SELECT is_adopting FROM s3_state WHERE one = 1) = 0
BEGIN
  INSERT INTO s3_dirty_inode VALUES (new.ino, (SELECT batch FROM s3_state WHERE one = 1))
    ON CONFLICT (ino) DO UPDATE SET batch = excluded.batch WHERE batch <> excluded.batch;
END;
CREATE TRIGGER s3_xattr_changed AFTER UPDATE ON xattr
WHEN (SELECT is_adopting FROM s3_state WHERE one = 1) = 0
BEGIN
  INSERT INTO s3_dirty_inode VALUES (new.ino, (SELECT batch FROM s3_state WHERE one = 1))
    ON CONFLICT (ino) DO UPDATE SET batch = excluded.batch WHERE batch <> excluded.batch;
END;
CREATE TRIGGER s3_xattr_removed AFTER DELETE ON xattr
WHEN (SELECT is_adopting FROM s3_state WHERE one = 1) = 0
BEGIN
  INSERT INTO s3_dirty_inode VALUES (old.ino, (SELECT batch FROM s3_state WHERE one = 1))
    ON CONFLICT (ino) DO UPDATE SET batch = excluded.batch WHERE batch <> excluded.batch;
END;
