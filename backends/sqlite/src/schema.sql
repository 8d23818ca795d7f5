-- The tables of a ctxbench file system, schema version 6. docs/SQLITE.md explains them.
-- Times are nanoseconds since 1970; `mode` is st_mode, type bits included.
CREATE TABLE inode (
  ino    INTEGER PRIMARY KEY,
  mode   INTEGER NOT NULL,
  nlink  INTEGER NOT NULL,
  uid    INTEGER NOT NULL,
  gid    INTEGER NOT NULL,
  rdev   INTEGER NOT NULL,
  size   INTEGER NOT NULL,
  blocks INTEGER NOT NULL,             -- allocated in this database, in units of 512 bytes
  atime  INTEGER NOT NULL,
  mtime  INTEGER NOT NULL,
  ctime  INTEGER NOT NULL,
  btime  INTEGER NOT NULL,
  parent INTEGER,                      -- of a directory
  target BLOB                          -- of a symbolic link
) STRICT;

-- Inodes whose last name is gone; they wait for whoever has them open, or for the next mount.
CREATE INDEX orphan ON inode (ino) WHERE nlink = 0;

-- A name. `slot` is the name's hash, or the next free one: it finds the name and orders listings.
CREATE TABLE dirent (
  parent INTEGER NOT NULL,
  slot   INTEGER NOT NULL,
  name   BLOB NOT NULL,
  ino    INTEGER NOT NULL,
  mode   INTEGER NOT NULL,             -- type bits only
  PRIMARY KEY (parent, slot)
) STRICT, WITHOUT ROWID;

-- A piece of the first 256 KiB of a file: id = ino * 2^24 + index, 32 KiB each. A missing or short piece
-- reads as zeros; what lies past the end of the file is left over, and no part of it. From byte 262144
-- on, content is in the file `<ino>` of the directory beside the database whose name ends in `-tails`.
CREATE TABLE chunk (
  id    INTEGER PRIMARY KEY,
  sum   INTEGER,                       -- 2^32 + CRC-32 of id (8 bytes, little-endian) and bytes
  bytes BLOB NOT NULL
) STRICT;

-- Checksums of tails. They count while the owner of the tail's file may execute it: a mount clears that bit before it
-- changes the tail, and sets it when the checksums are here again. `length` is the tail's in bytes. The other columns always
-- count. `synced`: a sync has made so many bytes of the tail durable, and no truncation has cut them off since. `is_cut`: 1 if the
-- file was truncated since its tail had checksums here, 2 if the bucket of a cache has it as it was after that, else 0.
CREATE TABLE tail (
  ino    INTEGER PRIMARY KEY,
  length INTEGER NOT NULL,
  synced INTEGER NOT NULL,
  is_cut INTEGER NOT NULL
) STRICT;

-- id = ino * 2^24 + index of the group; a CRC-32 (little-endian) for each of its 256 pieces of 32 KiB. Where a group is
-- missing, its pieces are zeros, and a last piece that is shorter and zeros has the checksum of a whole one.
CREATE TABLE tail_sum (
  id   INTEGER PRIMARY KEY,
  sums BLOB NOT NULL
) STRICT;

CREATE TABLE xattr (
  ino   INTEGER NOT NULL,
  name  BLOB NOT NULL,
  value BLOB NOT NULL,
  PRIMARY KEY (ino, name)
) STRICT, WITHOUT ROWID;

-- One row. In this file alone `needed` is 1 while a mount has the file, and 0 in the log of that mount: a 1 that can
-- be read means that the log was taken away.
CREATE TABLE log (
  needed  INTEGER NOT NULL,
  redo    INTEGER,                     -- while a mount has a redo log: which one
  ended   INTEGER,                     -- the redo log before: all its changes are in these tables
  applied INTEGER NOT NULL DEFAULT 0   -- its last change that is in these tables
) STRICT;
INSERT INTO log (needed) VALUES (0);

-- For people with a plain sqlite3: SELECT path, size FROM file;
CREATE VIEW file AS
  WITH RECURSIVE tree (ino, path) AS (
    SELECT 1, ''
    UNION ALL
    SELECT dirent.ino, tree.path || '/' || CAST(dirent.name AS TEXT)
    FROM tree JOIN dirent ON dirent.parent = tree.ino
  )
  SELECT tree.path, inode.* FROM tree JOIN inode USING (ino);

-- The first 256 KiB of content by inode and offset: SELECT CAST(bytes AS TEXT) FROM content WHERE ino = 2 ORDER BY at;
CREATE VIEW content AS
  SELECT ino, at, substr(bytes, 1, max(0, size - at)) AS bytes
  FROM (SELECT id >> 24 AS ino, (id & 16777215) * 32768 AS at, bytes FROM chunk)
  JOIN inode USING (ino);
