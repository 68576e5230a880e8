-- Jobs: what happens at a set time. The table of 0001 was never used.
DROP TABLE jobs;
CREATE TABLE jobs (
    id TEXT NOT NULL PRIMARY KEY,
    -- Where it belongs; '' for the house's own.
    session_key TEXT NOT NULL,
    -- Within its place; never used again.
    number INTEGER NOT NULL,
    origin TEXT NOT NULL CHECK (origin IN ('person', 'config', 'tool', 'house')),
    name TEXT NOT NULL,
    owner TEXT NOT NULL,
    platform TEXT NOT NULL,
    bot_id TEXT NOT NULL,
    chat_id TEXT NOT NULL,
    thread_id TEXT,
    -- What the gate and a turn need of the owner, as JSON.
    sender TEXT NOT NULL DEFAULT '{}',
    kind TEXT NOT NULL CHECK (kind IN ('once', 'every', 'cron')),
    -- A local wall time, seconds, or five fields; always read in this zone.
    spec TEXT NOT NULL,
    timezone TEXT NOT NULL,
    -- From where `every` counts.
    anchor_at REAL NOT NULL,
    action TEXT NOT NULL CHECK (action IN ('text', 'prompt')),
    text TEXT NOT NULL,
    state TEXT NOT NULL CHECK (state IN ('active', 'paused', 'done', 'cancelled')),
    -- Why it was paused by itself; '': it was not.
    reason TEXT NOT NULL DEFAULT '',
    next_run_at REAL,
    last_run_at REAL,
    created_at REAL NOT NULL,
    CHECK (next_run_at IS NOT NULL OR state <> 'active')
) STRICT;
CREATE UNIQUE INDEX jobs_by_place ON jobs (session_key, number);
CREATE INDEX jobs_due ON jobs (next_run_at) WHERE state = 'active';
CREATE INDEX jobs_of_owner ON jobs (owner);

-- The highest number that each place has given.
CREATE TABLE job_numbers (
    session_key TEXT NOT NULL PRIMARY KEY,
    last INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- The ledger: what became of each due time. Missed ones in a row are one entry.
CREATE TABLE job_runs (
    id INTEGER NOT NULL PRIMARY KEY,
    job_id TEXT NOT NULL REFERENCES jobs (id),
    due_at REAL NOT NULL,
    -- The last of `count` due times.
    until_at REAL NOT NULL,
    count INTEGER NOT NULL DEFAULT 1,
    state TEXT NOT NULL CHECK (state IN ('claimed', 'done', 'failed', 'missed')),
    reason TEXT NOT NULL DEFAULT '',
    claimed_at REAL NOT NULL,
    ended_at REAL,
    -- The row of a prompt: how that was answered is how the run went. Not for ever there.
    inbox_id INTEGER,
    CHECK ((ended_at IS NULL) = (state = 'claimed'))
) STRICT;
-- Nothing is due twice.
CREATE UNIQUE INDEX job_runs_by_due ON job_runs (job_id, due_at);
CREATE INDEX job_runs_of_job ON job_runs (job_id, id);
CREATE INDEX job_runs_open ON job_runs (job_id, inbox_id) WHERE state = 'claimed';
