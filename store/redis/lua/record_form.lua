-- A record: one hash. Small fields are packed, so that a tombstone stays a listpack.
--
-- v  the format, '1'
-- r  which request: fingerprint, nonce
-- c  its course: state, outcome, status, attempt, token, lease end, since, recovery, response and tombstone window
-- a  for time-ordered keys: whether there is a key time, maximum age, drift, key time
-- d  dead nonces
-- l, p  location and payload of the outcome
-- w, y  who resolved it, and why
-- s  '1' when it has steps, whose fields have longer names: see step.lua

local FORMAT = '1'
local REQUEST, REQUEST_SIZE = '>c33c16', 49
local COURSE, COURSE_SIZE = '>BBHI4i8i8i8Bi8i8', 49
local AGE, AGE_SIZE = '>Bi8i8i8', 25
-- What a claim asks for: lease, recovery, response and tombstone window.
local LIFE = '>i8Bi8i8'

local IN_FLIGHT, COMPLETED, IN_DOUBT, RELEASED = 1, 2, 3, 4
-- The outcome: none, without its payload, with it.
local NONE, NOT_KEPT, KEPT = 0, 1, 2
-- Recovery; 0 on the stub that an abandon leaves, which has no life settings.
local NO_LIFE, RERUN = 0, 2

local MARGIN = 3600000000
-- Of the payloads that one answer to several holds, in bytes.
local AT_ONCE = 262144
