-- What notes mean: vectors of an embedding model, one signed byte a number; empty where there is no text.
CREATE TABLE IF NOT EXISTS memory_embedding (
  id     INTEGER PRIMARY KEY,           -- the note's
  model  TEXT NOT NULL,                 -- the beginning of the SHA-256 of its weights and vocabulary
  vector BLOB NOT NULL
) STRICT;
