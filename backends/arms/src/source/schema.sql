CREATE TABLE messages (id INTEGER PRIMARY KEY, thread_id INTEGER, sender TEXT, recipient TEXT, sent_at TEXT, subject TEXT,
  body TEXT, folder TEXT CHECK (folder IN ('inbox', 'drafts', 'archive')), is_read INTEGER DEFAULT 0, version INTEGER DEFAULT 1);
CREATE TABLE tasks (id INTEGER PRIMARY KEY, name TEXT UNIQUE, title TEXT, owner TEXT, heartbeat TEXT,
  state TEXT CHECK (state IN ('open', 'running', 'done')));
CREATE TABLE depends_on (task TEXT, on_task TEXT);
CREATE TABLE log (id INTEGER PRIMARY KEY, at TEXT, service TEXT, level TEXT, request TEXT, message TEXT);
CREATE INDEX message_folder ON messages (folder, sender);
CREATE INDEX message_thread ON messages (thread_id);
CREATE INDEX dependency ON depends_on (task);
CREATE INDEX log_request ON log (request);
CREATE INDEX log_service ON log (service, level);
