-- Is there a list? KEYS: todos:state, the list's key. ARGV: an epoch in case there is none.
-- Answers the epoch, the timeline, the version, and the list's bytes if it is of that version.
local state = redis.call('HMGET', KEYS[1], 'epoch', 'timeline', 'version', KEYS[2])
if not state[1] then
  redis.call('HSET', KEYS[1], 'epoch', ARGV[1], 'timeline', '0', 'version', '0')
  return {ARGV[1], '0', '0'}
end
local timeline, version = state[2] or '0', state[3] or '0'
local list = state[4] and redis.call('GET', KEYS[2])
if list then
  return {state[1], timeline, version, list}
end
return {state[1], timeline, version}
