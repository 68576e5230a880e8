-- Groups that got another id (on Telegram: a group that became a supergroup).
CREATE TABLE moved_chats (
    platform TEXT NOT NULL,
    bot_id TEXT NOT NULL,
    old_chat_id TEXT NOT NULL,
    new_chat_id TEXT NOT NULL,
    moved_at REAL NOT NULL,
    PRIMARY KEY (platform, bot_id, old_chat_id)
) STRICT, WITHOUT ROWID;

-- The update of the newest edit that a waiting message shows: an older one that comes late is none.
ALTER TABLE inbox ADD COLUMN edit_update_id TEXT;

-- Words that came into a turn which was running: what a person said, but no turn's beginning.
CREATE TABLE steered (
    -- The original.
    row_id INTEGER NOT NULL PRIMARY KEY REFERENCES messages (id)
) STRICT;

-- Files that people sent. The bytes are in the folder `attachments`, under `name`.
CREATE TABLE attachments (
    -- Of the content (a hash), so the same picture is kept once.
    name TEXT NOT NULL,
    owner TEXT NOT NULL,
    -- As its sender calls it; only ever shown.
    file_name TEXT NOT NULL,
    media_type TEXT NOT NULL,
    size_bytes INTEGER NOT NULL,
    created_at REAL NOT NULL,
    PRIMARY KEY (name, owner)
) STRICT, WITHOUT ROWID;

-- Strangers who have asked to be let in: of the code only a salted hash is kept.
CREATE TABLE pairing_requests (
    platform TEXT NOT NULL,
    user_id TEXT NOT NULL,
    shown_name TEXT NOT NULL,
    salt BLOB NOT NULL,
    digest BLOB NOT NULL,
    asked_at REAL NOT NULL,
    expires_at REAL NOT NULL,
    PRIMARY KEY (platform, user_id)
) STRICT, WITHOUT ROWID;

-- People who were let in by a code.
CREATE TABLE paired (
    platform TEXT NOT NULL,
    user_id TEXT NOT NULL,
    shown_name TEXT NOT NULL,
    approved_at REAL NOT NULL,
    PRIMARY KEY (platform, user_id)
) STRICT, WITHOUT ROWID;

-- Wrong codes; too many of them lock approvals for a while.
CREATE TABLE pairing_failures (
    id INTEGER NOT NULL PRIMARY KEY,
    failed_at REAL NOT NULL
) STRICT;

-- Rows that asked for a restart and whose chats have not heard yet that there was one.
CREATE TABLE restarts_awaited (
    inbox_id INTEGER NOT NULL PRIMARY KEY REFERENCES inbox (id)
) STRICT;

-- What belongs to an answer beside its text, as JSON: buttons, files, the menu's interaction that it
-- answers, the preview that it takes the place of.
ALTER TABLE outbox ADD COLUMN extras TEXT NOT NULL DEFAULT '{}';

-- Messages in which running turns show what they have so far.
CREATE TABLE previews (
    turn_id TEXT NOT NULL PRIMARY KEY REFERENCES turns (id),
    platform TEXT NOT NULL,
    bot_id TEXT NOT NULL,
    chat_id TEXT NOT NULL,
    thread_id TEXT,
    message_id TEXT NOT NULL,
    created_at REAL NOT NULL
) STRICT, WITHOUT ROWID;
