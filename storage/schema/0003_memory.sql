-- What people wanted to have remembered: one line each.
CREATE TABLE notes (
    -- A person (`platform:user id`) for what was said in direct chats, else a session key.
    place TEXT NOT NULL,
    -- Within its place; never used again.
    number INTEGER NOT NULL,
    text TEXT NOT NULL,
    -- Who had it remembered.
    owner TEXT NOT NULL,
    created_at REAL NOT NULL,
    changed_at REAL NOT NULL,
    PRIMARY KEY (place, number)
) STRICT, WITHOUT ROWID;

CREATE INDEX notes_of_owner ON notes (owner);

-- The highest number that each place has given.
CREATE TABLE note_numbers (
    place TEXT NOT NULL PRIMARY KEY,
    last INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
