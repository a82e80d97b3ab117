"""How a run lies in the store: one hash, which expires as a whole, and the scripts that alone touch it.

    e       epoch: how often a run of this name was ended before, as far as the store remembers
    x       present: the run was ended, and this is its tombstone
    b       its birth: drawn by the write that made the hash, so another one where the store has lost the run meanwhile
    r, ri   the revision of the last answer, and its iteration
    s, si   the run's figures, and the number of its calls then
    t, ti   its tasks, all in one value, and the version of them
    k, ki   its hidden turns, all in one value, and what tells that value from others
    o<id>   an original
    h<name> the facts of the items that one batch has recorded

The names of a caller's runs are noted in a sorted set, by when they can be forgotten, so that all of them can be ended.

Every write names its epoch, and the scripts compare it: a write of a run that was ended meanwhile changes nothing,
however late it comes. A write never makes a hash unless it says that it begins the run, and otherwise names the birth
that it knows: so what the store has evicted does not come back in part, though another process has begun it again
meanwhile. All writes may be repeated.
"""

from __future__ import annotations

from typing import Final

EPOCH: Final = b"e"
TOMBSTONE: Final = b"x"
BIRTH: Final = b"b"
REVISION: Final = b"r"
FIGURES: Final = b"s"
TASKS: Final = b"t"
HIDDEN: Final = b"k"
HIDDEN_NAME: Final = b"ki"
ORIGINAL: Final = b"o"
ITEMS: Final = b"h"

DONE: Final = b"done"
GONE: Final = b"gone"
"""The store has no such run, or has lost what it had before of it."""
ENDED: Final = b"ended"
"""The run was ended, or another has begun under its name."""

WRITE: Final = """
local stored = redis.call('HGET', KEYS[1], 'e')
local epoch, begins, birth = tonumber(ARGV[1]), ARGV[2] == '1', ARGV[3]
local known = redis.call('HGET', KEYS[1], 'b') or ''
if not stored then
  if not begins then return 'gone' end
elseif tonumber(stored) > epoch then
  return 'ended'
elseif tonumber(stored) < epoch then
  if not begins then return 'gone' end
  redis.call('DEL', KEYS[1])
elseif redis.call('HEXISTS', KEYS[1], 'x') == 1 then
  if not begins then return 'gone' end
  redis.call('HDEL', KEYS[1], 'x')
elseif begins then
  birth = known
elseif known ~= birth then
  return 'gone'
end
redis.call('HSET', KEYS[1], 'e', epoch, 'b', birth)
if ARGV[5] ~= '' then
  local at = redis.call('HGET', KEYS[1], 'ri')
  if not at or tonumber(at) <= tonumber(ARGV[6]) or tonumber(at) == tonumber(ARGV[7]) then
    redis.call('HSET', KEYS[1], 'r', ARGV[5], 'ri', ARGV[6])
  end
end
if ARGV[8] ~= '' then
  local at = redis.call('HGET', KEYS[1], 'si')
  if not at or tonumber(at) <= tonumber(ARGV[9]) then
    redis.call('HSET', KEYS[1], 's', ARGV[8], 'si', ARGV[9])
  end
end
local others = false
if ARGV[10] ~= '' then
  local tasks = redis.call('HGET', KEYS[1], 't')
  if (tasks and redis.sha1hex(tasks) or '') == ARGV[12] then
    redis.call('HSET', KEYS[1], 't', ARGV[10], 'ti', ARGV[11])
  else
    others = tasks or ''
  end
end
local other = false
if ARGV[13] ~= '' then
  local at = redis.call('HGET', KEYS[1], 'ki') or ''
  if at == ARGV[15] or at == ARGV[14] then
    redis.call('HSET', KEYS[1], 'k', ARGV[13], 'ki', ARGV[14])
  else
    other = at
  end
end
for field = 16, #ARGV, 2 do
  redis.call('HSET', KEYS[1], ARGV[field], ARGV[field + 1])
end
redis.call('PEXPIRE', KEYS[1], ARGV[4])
return {'done', birth, others, other}
"""
"""ARGV: epoch, whether the write begins the run, the birth that it has or else gets, time to live in ms; revision, its
iteration, the iteration of the one before; figures, calls; tasks, their version, the digest of the value in whose place
they come (empty: of none); hidden turns, the name of that value, the name of the one in whose place it comes (empty: of
none); then fields and values. What is empty is not written. Returns `done`, the run's birth, the tasks that are there
where these were not written as it is another value (empty: none), and likewise the name of the hidden turns that are
there; or why nothing was written."""

READ: Final = """
if redis.call('HEXISTS', KEYS[1], 'x') == 0 then redis.call('PEXPIRE', KEYS[1], ARGV[1]) end
return redis.call('HMGET', KEYS[1], 'e', 'x', unpack(ARGV, 2))
"""
"""ARGV: time to live in ms, then fields. Returns epoch, tombstone, then the values."""

CHANGES: Final = """
if redis.call('HEXISTS', KEYS[1], 'x') == 0 then redis.call('PEXPIRE', KEYS[1], ARGV[1]) end
local found = redis.call('HMGET', KEYS[1], 'e', 'x', 't', 'ki')
local hidden = false
if found[4] and found[4] ~= ARGV[2] then hidden = redis.call('HGET', KEYS[1], 'k') end
return {found[1], found[2], found[3], found[4], hidden}
"""
"""ARGV: time to live in ms, the name of the hidden turns that are known. Returns epoch, tombstone, tasks, the name of
the hidden turns that are there, and these, if they are others."""

TOUCH: Final = """
local stored = redis.call('HGET', KEYS[1], 'e')
if stored then redis.call('HSET', KEYS[1], 'e', stored) end
return 'done'
"""
"""Writes what is there, so that a store which takes no writes says so."""

LIST: Final = """
return redis.call('HKEYS', KEYS[1])
"""

END_NOW: Final = """
if redis.call('HEXISTS', KEYS[1], 'x') == 1 then return 'gone' end
local stored = redis.call('HGET', KEYS[1], 'e')
redis.call('DEL', KEYS[1])
redis.call('HSET', KEYS[1], 'e', tonumber(stored or '0') + 1, 'x', 1)
redis.call('PEXPIRE', KEYS[1], ARGV[1])
if stored then return 'done' else return 'gone' end
"""
"""Ends whatever run has the name, and also one whose first write is still on its way. ARGV: the tombstone's time to
live in ms."""

NOTE: Final = """
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now)
redis.call('ZADD', KEYS[1], now + ARGV[1], ARGV[2])
redis.call('PEXPIRE', KEYS[1], ARGV[1])
return 'done'
"""
"""ARGV: for how long the name is noted, in ms, and the name of a run."""

NOTED: Final = """
return redis.call('ZRANGE', KEYS[1], 0, ARGV[1] - 1)
"""
"""ARGV: the most names to return."""

FORGET: Final = """
return redis.call('ZREM', KEYS[1], unpack(ARGV))
"""
"""ARGV: names that need no longer be noted."""

END: Final = """
local stored = redis.call('HGET', KEYS[1], 'e')
if stored and tonumber(stored) > tonumber(ARGV[1]) then return 'done' end
redis.call('DEL', KEYS[1])
redis.call('HSET', KEYS[1], 'e', tonumber(ARGV[1]) + 1, 'x', 1)
redis.call('PEXPIRE', KEYS[1], ARGV[2])
return 'done'
"""
"""ARGV: the epoch that ends, the tombstone's time to live in ms."""
