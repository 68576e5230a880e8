-- Conversations: what a person thinks of as one chat.
CREATE TABLE conversations (
    id TEXT NOT NULL PRIMARY KEY,
    owner TEXT NOT NULL,
    session_key TEXT NOT NULL,
    -- Checked by the invariants, not by a foreign key: the two tables name each other.
    tip_session_id TEXT NOT NULL,
    created_at REAL NOT NULL
) STRICT;
CREATE INDEX conversations_by_owner ON conversations (owner);
CREATE INDEX conversations_by_key ON conversations (session_key);

CREATE TABLE routes (
    session_key TEXT NOT NULL PRIMARY KEY,
    conversation_id TEXT NOT NULL REFERENCES conversations (id)
) STRICT, WITHOUT ROWID;
CREATE INDEX routes_by_conversation ON routes (conversation_id);

-- Sessions: one segment of a conversation. What changes with each message stands before the long
-- texts, so that counting a message up writes one page.
CREATE TABLE sessions (
    -- The order in which they were made; a bare rowid may be given anew by VACUUM.
    serial INTEGER NOT NULL PRIMARY KEY,
    id TEXT NOT NULL UNIQUE,
    conversation_id TEXT NOT NULL REFERENCES conversations (id),
    parent_session_id TEXT REFERENCES sessions (id),
    link TEXT CHECK (link IN ('continuation', 'branch')),
    revision INTEGER NOT NULL DEFAULT 0,
    message_count INTEGER NOT NULL DEFAULT 0,
    -- The highest seq ever given out here: seqs rise and are never used again.
    last_seq INTEGER NOT NULL DEFAULT 0,
    -- The newest message that was put here when the session was made; what came later was said here.
    carried_row_id INTEGER NOT NULL DEFAULT 0,
    anchor_prompt_tokens INTEGER,
    anchor_output_tokens INTEGER,
    anchor_row_id INTEGER,
    source TEXT NOT NULL,
    model TEXT NOT NULL,
    title TEXT,
    started_at REAL NOT NULL,
    ended_at REAL,
    end_reason TEXT CHECK (
        end_reason IN ('compression', 'reset', 'idle', 'daily', 'switch', 'uncompress')
    ),
    compression TEXT NOT NULL DEFAULT '{}',
    model_config TEXT NOT NULL DEFAULT '{}',
    manifest TEXT,
    system_prompt TEXT NOT NULL,
    tools TEXT NOT NULL DEFAULT '[]',
    CHECK ((parent_session_id IS NULL) = (link IS NULL))
) STRICT;
CREATE INDEX sessions_by_conversation ON sessions (conversation_id);
-- A parent has one continuation, whatever races.
CREATE UNIQUE INDEX one_continuation ON sessions (parent_session_id) WHERE link = 'continuation';

-- Messages. A row's content never changes; a revision replaces rows.
CREATE TABLE messages (
    id INTEGER NOT NULL PRIMARY KEY,
    session_id TEXT NOT NULL REFERENCES sessions (id),
    seq INTEGER NOT NULL,
    active INTEGER NOT NULL DEFAULT 1 CHECK (active IN (0, 1)),
    compacted INTEGER NOT NULL DEFAULT 0 CHECK (compacted IN (0, 1)),
    created_at REAL NOT NULL,
    tokens INTEGER NOT NULL DEFAULT 0,
    role TEXT NOT NULL CHECK (role IN ('system', 'user', 'assistant', 'tool')),
    -- In front of the long texts: what a row is can then be asked without reading what it says.
    kind TEXT CHECK (kind IN ('summary', 'micro', 'note', 'stub', 'notice')),
    origin_id INTEGER REFERENCES messages (id),
    content TEXT,
    content_is_json INTEGER NOT NULL DEFAULT 0,
    wire_content TEXT,
    wire_is_json INTEGER NOT NULL DEFAULT 0,
    tool_calls TEXT,
    tool_call_id TEXT,
    tool_name TEXT,
    -- The provider's blocks of an assistant message, as it sent them.
    raw_blocks TEXT
) STRICT;
CREATE UNIQUE INDEX messages_by_place ON messages (session_id, active, seq);
-- A result that was sent in part names its call: so the whole of it is found again.
CREATE INDEX messages_by_call ON messages (tool_call_id)
WHERE tool_call_id IS NOT NULL AND origin_id IS NULL AND kind IS NULL;
-- By its original: what somebody took back (/undo) is out of search, wherever it is stored.
CREATE INDEX messages_taken_back ON messages (coalesce(origin_id, id))
WHERE active = 0 AND compacted = 0;

-- The list that a compression inside a session replaced: row ids in their order, as JSON.
CREATE TABLE replaced_lists (
    session_id TEXT NOT NULL REFERENCES sessions (id),
    -- That the compression made.
    revision INTEGER NOT NULL,
    -- The newest message of the store right after it; what came later was said here since.
    carried_row_id INTEGER NOT NULL,
    made_at REAL NOT NULL,
    row_ids TEXT NOT NULL,
    PRIMARY KEY (session_id, revision)
) STRICT, WITHOUT ROWID;

-- Search. Contentless: the text is in messages. bm25 needs detail=full there.
CREATE VIRTUAL TABLE message_index USING fts5 (
    text, content = '', tokenize = 'porter unicode61 remove_diacritics 2'
);
-- Joined by the writer, a little with each message; SQLite itself would let one message wait.
INSERT INTO message_index (message_index, rank) VALUES ('automerge', 0);
INSERT INTO message_index (message_index, rank) VALUES ('crisismerge', 64);

-- Turns: one inbound message (or batch) up to its final reply.
-- running | interrupted (orderly) | crashed (counted, to be resumed) | done | failed | stopped
CREATE TABLE turns (
    id TEXT NOT NULL PRIMARY KEY,
    conversation_id TEXT NOT NULL REFERENCES conversations (id),
    session_id TEXT NOT NULL REFERENCES sessions (id),
    session_key TEXT NOT NULL,
    owner TEXT NOT NULL,
    user_row_id INTEGER NOT NULL REFERENCES messages (id),
    state TEXT NOT NULL CHECK (
        state IN ('running', 'interrupted', 'crashed', 'done', 'failed', 'stopped')
    ),
    crashes INTEGER NOT NULL DEFAULT 0,
    -- The newest message of the store when the last crash was counted.
    crash_row_id INTEGER NOT NULL DEFAULT 0,
    started_at REAL NOT NULL,
    ended_at REAL
) STRICT;
CREATE INDEX turns_open ON turns (state) WHERE state IN ('running', 'interrupted', 'crashed');

-- Mail that came in.
CREATE TABLE inbox (
    id INTEGER NOT NULL PRIMARY KEY,
    platform TEXT NOT NULL,
    bot_id TEXT NOT NULL,
    chat_id TEXT,
    thread_id TEXT,
    message_id TEXT,
    reply_to_message_id TEXT,
    kind TEXT NOT NULL,
    update_id TEXT,
    session_key TEXT NOT NULL,
    owner TEXT NOT NULL,
    text TEXT NOT NULL,
    payload TEXT NOT NULL DEFAULT '{}',
    received_at REAL NOT NULL,
    sent_at REAL NOT NULL,
    state TEXT NOT NULL CHECK (state IN ('new', 'claimed', 'answered', 'quarantined')),
    turn_id TEXT REFERENCES turns (id),
    -- Why an update is in quarantine.
    reason TEXT
) STRICT;
CREATE UNIQUE INDEX inbox_update ON inbox (platform, bot_id, kind, update_id)
WHERE update_id IS NOT NULL;
CREATE UNIQUE INDEX inbox_message ON inbox (platform, bot_id, chat_id, message_id, kind)
WHERE message_id IS NOT NULL;
CREATE INDEX inbox_waiting ON inbox (session_key) WHERE state = 'new';
CREATE INDEX inbox_of_turn ON inbox (turn_id) WHERE turn_id IS NOT NULL;

CREATE TABLE cursors (
    platform TEXT NOT NULL,
    bot_id TEXT NOT NULL,
    channel_id TEXT NOT NULL,
    message_id TEXT NOT NULL,
    PRIMARY KEY (platform, bot_id, channel_id)
) STRICT, WITHOUT ROWID;

-- Answers that are owed.
CREATE TABLE outbox (
    id INTEGER NOT NULL PRIMARY KEY,
    conversation_id TEXT REFERENCES conversations (id),
    turn_id TEXT REFERENCES turns (id),
    platform TEXT NOT NULL,
    bot_id TEXT NOT NULL,
    chat_id TEXT NOT NULL,
    thread_id TEXT,
    reply_to_message_id TEXT,
    kind TEXT NOT NULL CHECK (kind IN ('reply', 'command', 'notice')),
    text TEXT NOT NULL,
    state TEXT NOT NULL CHECK (state IN ('planned', 'sending', 'sent', 'unknown', 'failed')),
    error TEXT,
    created_at REAL NOT NULL
) STRICT;
CREATE INDEX outbox_owed ON outbox (id) WHERE state IN ('planned', 'sending', 'unknown');

CREATE TABLE outbox_parts (
    id INTEGER NOT NULL PRIMARY KEY,
    outbox_id INTEGER NOT NULL REFERENCES outbox (id),
    n INTEGER NOT NULL,
    state TEXT NOT NULL CHECK (state IN ('planned', 'sending', 'sent', 'unknown', 'failed')),
    payload TEXT NOT NULL,
    platform_message_id TEXT,
    attempts INTEGER NOT NULL DEFAULT 0,
    error TEXT,
    UNIQUE (outbox_id, n)
) STRICT;

-- Who compresses a conversation at this moment.
CREATE TABLE leases (
    conversation_id TEXT NOT NULL PRIMARY KEY REFERENCES conversations (id),
    holder TEXT NOT NULL,
    generation INTEGER NOT NULL,
    expires_at REAL NOT NULL
) STRICT, WITHOUT ROWID;

-- A summary that was made ahead of time, good for exactly this state of the session.
CREATE TABLE prepared (
    session_id TEXT NOT NULL PRIMARY KEY REFERENCES sessions (id),
    revision INTEGER NOT NULL,
    covered_row_id INTEGER NOT NULL,
    payload TEXT NOT NULL,
    created_at REAL NOT NULL
) STRICT, WITHOUT ROWID;

-- The ledger: what each answer of a model took, whatever became of it.
CREATE TABLE requests (
    id INTEGER NOT NULL PRIMARY KEY,
    -- NULL: a side task that belongs to no conversation.
    session_serial INTEGER REFERENCES sessions (serial),
    -- Who is charged: whose turn it was for; '': nobody.
    owner TEXT NOT NULL,
    at REAL NOT NULL,
    purpose TEXT NOT NULL CHECK (purpose IN ('turn', 'summary', 'micro', 'background', 'other')),
    -- Who answered: a fallback under its own name.
    model TEXT NOT NULL,
    input_tokens INTEGER NOT NULL,
    output_tokens INTEGER NOT NULL,
    cache_read_tokens INTEGER NOT NULL,
    cache_write_tokens INTEGER NOT NULL,
    -- That part of it that is kept for an hour, which costs more.
    cache_write_1h_tokens INTEGER NOT NULL DEFAULT 0,
    -- Why the prompt's beginning was not found in the cache; '': it was, or nothing is known.
    cache_miss TEXT NOT NULL DEFAULT ''
) STRICT;
CREATE INDEX requests_by_session ON requests (session_serial);
CREATE INDEX requests_by_owner ON requests (owner, at);

-- What somebody was told last about money: a warning is given once.
CREATE TABLE told_of_money (
    owner TEXT NOT NULL PRIMARY KEY,
    mark TEXT NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE jobs (
    id TEXT NOT NULL PRIMARY KEY,
    session_key TEXT NOT NULL,
    owner TEXT NOT NULL,
    kind TEXT NOT NULL CHECK (kind IN ('once', 'every', 'cron')),
    spec TEXT NOT NULL,
    timezone TEXT,
    payload TEXT NOT NULL DEFAULT '{}',
    next_run_at REAL,
    last_run_at REAL,
    created_at REAL NOT NULL
) STRICT;

-- Facts about this file: the version of the search segmenter, whether the index is damaged.
CREATE TABLE facts (
    name TEXT NOT NULL PRIMARY KEY,
    value TEXT NOT NULL
) STRICT, WITHOUT ROWID;
INSERT INTO facts (name, value) VALUES ('segmenter', '1');
