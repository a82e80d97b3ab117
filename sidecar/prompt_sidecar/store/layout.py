"""How a run lies in the store: one hash, which expires as a whole, and the scripts that alone touch it.

    e       epoch: how often a run of this name was ended before, as far as the store remembers
    x       present: the run was ended, and this is its tombstone
    b       its birth: drawn by the write that made the hash, so another one where the store has lost the run meanwhile
    r, ri   the revision of the last answer, and its iteration
    s, si   the run's figures, and the number of its calls then
    t, ti   its tasks, all in one value, and the version of them
    k, ki   its hidden turns, all in one value, and what tells that value from others
    v<id>   a value behind a mask, where the settings have them kept
    vi, vb  the ids of these values one after the other, and the bytes that the values take
    m, c    m: the run was written by a version that knows c; c is missing while a process has something of the run that
            the store was too full to take. Removing a field needs no memory, so a full store can be told
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
VALUE: Final = b"v"
VALUE_IDS: Final = b"vi"
ORIGINAL: Final = b"o"
ITEMS: Final = b"h"

DONE: Final = b"done"
GONE: Final = b"gone"
"""The store has no such run, or has lost what it had before of it."""
ENDED: Final = b"ended"
"""The run was ended, or another has begun under its name."""
UNWRITTEN: Final = b"unwritten"
"""A process has something of the run that the store was too full to take."""

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
if redis.call('HSETNX', KEYS[1], 'm', 1) == 1 then redis.call('HSET', KEYS[1], 'c', 1) end
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
local last = 18 + 2 * ARGV[18]
local many, large = 0, 0
if last > 18 then
  local ids = redis.call('HGET', KEYS[1], 'vi') or ''
  local size = tonumber(redis.call('HGET', KEYS[1], 'vb') or '0') or 0
  for at = 19, last, 2 do
    local name = 'v' .. ARGV[at]
    if redis.call('HEXISTS', KEYS[1], name) == 0 then
      if #ids >= ARGV[16] * #ARGV[at] then
        many = many + 1
      elseif size + #ARGV[at + 1] > tonumber(ARGV[17]) then
        large = large + 1
      else
        redis.call('HSET', KEYS[1], name, ARGV[at + 1])
        ids, size = ids .. ARGV[at], size + #ARGV[at + 1]
      end
    end
  end
  redis.call('HSET', KEYS[1], 'vi', ids, 'vb', size)
end
for field = last + 1, #ARGV, 2 do
  redis.call('HSET', KEYS[1], ARGV[field], ARGV[field + 1])
end
redis.call('PEXPIRE', KEYS[1], ARGV[4])
return {'done', birth, others, other, tostring(many), tostring(large)}
"""
"""ARGV: epoch, whether the write begins the run, the birth that it has or else gets, time to live in ms; revision, its
iteration, the iteration of the one before; figures, calls; tasks, their version, the digest of the value in whose place
they come (empty: of none); hidden turns, the name of that value, the name of the one in whose place it comes (empty: of
none); the most values behind masks and their most bytes, how many come, then the id of each and the value; then fields
and values. What is empty is not written. Returns `done`, the run's birth, the tasks that are there where these were not
written as it is another value (empty: none), likewise the name of the hidden turns that are there, and how many values
behind masks were not written as there were too many, or too many bytes; or why nothing was written."""

READ: Final = """
if redis.call('HEXISTS', KEYS[1], 'x') == 0 then redis.call('PEXPIRE', KEYS[1], ARGV[1]) end
return redis.call('HMGET', KEYS[1], 'e', 'x', unpack(ARGV, 2))
"""
"""ARGV: time to live in ms, then fields. Returns epoch, tombstone, then the values."""

NOT_ASKED: Final = b"-"

CHANGES: Final = """
if redis.call('HEXISTS', KEYS[1], 'x') == 0 then redis.call('PEXPIRE', KEYS[1], ARGV[1]) end
local found = redis.call('HMGET', KEYS[1], 'e', 'x', 't', 'ki')
local hidden, ids = false, false
if ARGV[2] ~= '-' and found[4] and found[4] ~= ARGV[2] then hidden = redis.call('HGET', KEYS[1], 'k') end
if ARGV[3] ~= '' and redis.call('HSTRLEN', KEYS[1], 'vi') > tonumber(ARGV[3]) then
  ids = redis.call('HGET', KEYS[1], 'vi')
end
return {found[1], found[2], found[3], found[4], hidden, ids}
"""
"""ARGV: time to live in ms, the name of the hidden turns that are known (`-`: they are not asked for), the bytes of the
ids of values behind masks that are known (empty: they are not asked for). Returns epoch, tombstone, tasks, the name of
the hidden turns that are there, and these, if they are others; the ids, if they are more."""

TOUCH: Final = """
local stored = redis.call('HGET', KEYS[1], 'e')
if stored then redis.call('HSET', KEYS[1], 'e', stored) end
if redis.call('HEXISTS', KEYS[1], 'm') == 1 and redis.call('HEXISTS', KEYS[1], 'c') == 0 then return 'unwritten' end
return 'done'
"""
"""Writes what is there, so that a store which takes no writes says so. Returns `unwritten` or `done`."""

UNWRITTEN_HERE: Final = """
if redis.call('HGET', KEYS[1], 'e') ~= ARGV[1] then return 'gone' end
if redis.call('HDEL', KEYS[1], 'c') == 1 then return 'done' end
return 'unwritten'
"""
"""Notes that the caller has something of the run that the store is too full for: by commands that a full store takes.
ARGV: epoch. Returns `unwritten` if another process, or this one, has noted it before."""

WRITTEN_SINCE: Final = """
if redis.call('HGET', KEYS[1], 'e') == ARGV[1] and redis.call('HEXISTS', KEYS[1], 'm') == 1 then
  redis.call('HSET', KEYS[1], 'c', 1)
end
return 'done'
"""
"""Takes that back. ARGV: epoch."""

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
