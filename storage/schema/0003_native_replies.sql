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
