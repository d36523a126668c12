-- What scripts share: numbers, nonces that are refused, expiry.

local function text(number)
  return string.format('%.0f', number)
end

local function later(time, by)
  return math.min(time + by, MOST)
end

local function between(earlier, now)
  return math.max(now - earlier, 0)
end

-- Dead nonces are one string: for each, its 16 bytes and until when, 8 bytes.
local DEAD = '>c16i8'
local DEAD_SIZE = 24

local function is_dead(dead, nonce, now)
  for at = 1, #dead, DEAD_SIZE do
    local other, last = struct.unpack(DEAD, dead, at)
    if other == nonce and now <= last then
      return true
    end
  end
  return false
end

-- In a storm of claims that are given up, the oldest are forgotten.
local MOST_DEAD = 1000

-- Adds a nonce and forgets those whose time is past, and all but the newest.
local function kill(dead, nonce, dead_for, now)
  local kept = {}
  for at = 1, #dead, DEAD_SIZE do
    local other, last = struct.unpack(DEAD, dead, at)
    if other ~= nonce and now <= last then
      kept[#kept + 1] = string.sub(dead, at, at + DEAD_SIZE - 1)
    end
  end
  kept[#kept + 1] = struct.pack(DEAD, nonce, later(now, dead_for))
  return table.concat(kept, '', math.max(1, #kept - MOST_DEAD + 1))
end

local function dead_until(dead)
  local latest = -MOST
  for at = 1, #dead, DEAD_SIZE do
    local _, last = struct.unpack(DEAD, dead, at)
    latest = math.max(latest, last)
  end
  return latest
end

-- Redis forgets a key `margin` after nothing of it counts any more. Nothing is judged by that: it is for what nobody sweeps.
local function expire(key, kept, now, margin)
  local left = math.max(kept - now, 0) + margin
  redis.call('PEXPIRE', key, text(math.ceil(left / 1000)))
end

-- Tells those who wait for the key that they may ask again. Without permission to publish nobody is told, and all else is as ever.
local function tell(key)
  if TELLS then
    redis.pcall('PUBLISH', key, '')
  end
end

-- Fields of a hash: nil when there is no such key, false when it is no hash, or one without our first field.
local function fields(key, ...)
  local found = redis.pcall('HMGET', key, ...)
  if found.err then
    if string.sub(found.err, 1, 9) == 'WRONGTYPE' then
      return false
    end
    error(found)
  end
  if found[1] then
    return found
  end
  if redis.call('EXISTS', key) == 1 then
    return false
  end
  return nil
end
