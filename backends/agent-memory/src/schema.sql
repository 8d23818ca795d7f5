-- What agent memory has beside the tables of a ctxbench file system, version 4. docs/MEMORY.md explains them, and how to
-- drop them: the triggers too, without which `inode` and `dirent` cannot be changed once the tables are gone. The next mount
-- builds all of it again from files, names and attributes; but for what happened and who wrote, which is only here.

CREATE TABLE memory_setting (
  name  TEXT PRIMARY KEY,
  value TEXT NOT NULL
) STRICT, WITHOUT ROWID;
INSERT INTO memory_setting VALUES ('version', '4');

-- Names by inode: the way from a note up to its path.
CREATE TABLE memory_name (
  ino    INTEGER NOT NULL,
  parent INTEGER NOT NULL,
  name   BLOB NOT NULL,
  PRIMARY KEY (ino, parent, name)
) STRICT, WITHOUT ROWID;

-- Inodes that have changed since they were indexed; of a directory, everything below it.
CREATE TABLE memory_stale (
  ino INTEGER PRIMARY KEY
) STRICT;

-- A regular file with a name. The later its content was indexed, the higher its id; what waited together was indexed
-- in the order of mtime. What is found is read from the highest id down.
CREATE TABLE memory_note (
  id         INTEGER PRIMARY KEY,
  ino        INTEGER NOT NULL UNIQUE,
  dir        INTEGER NOT NULL,
  name       BLOB NOT NULL,
  size       INTEGER NOT NULL,
  changed    INTEGER NOT NULL,          -- its mtime, in nanoseconds since 1970
  importance REAL NOT NULL,
  tags       TEXT NOT NULL,             -- separated by commas
  author     TEXT NOT NULL,
  expires    INTEGER,                   -- nanoseconds since 1970
  is_text    INTEGER NOT NULL,
  is_found   INTEGER NOT NULL,          -- 0 once it has expired: it is no longer in memory_text
  body       INTEGER NOT NULL,          -- where what follows the front matter begins, in bytes
  heading    TEXT NOT NULL,             -- what recall shows above it
  tokens     INTEGER,                   -- of heading and body, where recall shows it whole
  words      BLOB NOT NULL              -- number of words; hash and count of each stem, sorted
) STRICT;
CREATE INDEX memory_note_dir ON memory_note (dir, id);
CREATE INDEX memory_note_expires ON memory_note (is_found, expires) WHERE expires IS NOT NULL;
CREATE INDEX memory_note_tagged ON memory_note (id) WHERE tags <> '';

-- The words of notes by note id; `stems` has the stem of each word that differs from it, which only recall reads;
-- `within` has the directories above as d<inode>.
CREATE VIRTUAL TABLE memory_text USING fts5 (
  name, tags, text, stems, within,
  content = '', contentless_delete = 1, tokenize = 'unicode61 remove_diacritics 0'
);

-- What notes mean: vectors of an embedding model, one signed byte a number; empty where there is no text.
CREATE TABLE memory_embedding (
  id     INTEGER PRIMARY KEY,           -- the note's
  model  TEXT NOT NULL,                 -- the beginning of the SHA-256 of its weights, vocabulary and prompt
  vector BLOB NOT NULL
) STRICT;

-- What happened to notes, the newest 100,000 of it.
CREATE TABLE memory_event (
  id     INTEGER PRIMARY KEY,
  at     INTEGER NOT NULL,
  what   TEXT NOT NULL,
  ino    INTEGER NOT NULL,
  dir    INTEGER NOT NULL,
  name   BLOB NOT NULL,
  size   INTEGER NOT NULL,
  author TEXT NOT NULL
) STRICT;

DROP TRIGGER IF EXISTS memory_inode_changed;
CREATE TRIGGER memory_inode_changed AFTER UPDATE ON inode
WHEN new.mode & 61440 = 32768 AND (new.size <> old.size OR new.mtime <> old.mtime OR new.ctime <> old.ctime)
BEGIN
  INSERT INTO memory_stale VALUES (new.ino) ON CONFLICT (ino) DO NOTHING;
END;
DROP TRIGGER IF EXISTS memory_inode_gone;
CREATE TRIGGER memory_inode_gone AFTER DELETE ON inode
WHEN old.mode & 61440 = 32768
BEGIN
  INSERT INTO memory_stale VALUES (old.ino) ON CONFLICT (ino) DO NOTHING;
END;

DROP TRIGGER IF EXISTS memory_name_added;
CREATE TRIGGER memory_name_added AFTER INSERT ON dirent
BEGIN
  INSERT INTO memory_name VALUES (new.ino, new.parent, new.name) ON CONFLICT (ino, parent, name) DO NOTHING;
  INSERT INTO memory_stale VALUES (new.ino) ON CONFLICT (ino) DO NOTHING;
END;
DROP TRIGGER IF EXISTS memory_name_removed;
CREATE TRIGGER memory_name_removed AFTER DELETE ON dirent
BEGIN
  DELETE FROM memory_name WHERE ino = old.ino AND parent = old.parent AND name = old.name;
  INSERT INTO memory_stale VALUES (old.ino) ON CONFLICT (ino) DO NOTHING;
END;
DROP TRIGGER IF EXISTS memory_name_changed;
CREATE TRIGGER memory_name_changed AFTER UPDATE ON dirent
BEGIN
  DELETE FROM memory_name WHERE ino = old.ino AND parent = old.parent AND name = old.name;
  INSERT INTO memory_name VALUES (new.ino, new.parent, new.name) ON CONFLICT (ino, parent, name) DO NOTHING;
  INSERT INTO memory_stale VALUES (old.ino) ON CONFLICT (ino) DO NOTHING;
  INSERT INTO memory_stale VALUES (new.ino) ON CONFLICT (ino) DO NOTHING;
END;

-- What is in the file system already.
INSERT INTO memory_name SELECT ino, parent, name FROM dirent WHERE true ON CONFLICT (ino, parent, name) DO NOTHING;
INSERT INTO memory_stale SELECT ino FROM inode WHERE mode & 61440 = 32768;
