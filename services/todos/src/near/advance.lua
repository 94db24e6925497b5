-- There is a revision of the store. KEYS: todos:state, todos:version. ARGV: its timeline and version, an epoch in case there
-- is none. Forgets every list that is older. Answers the newest revision that was ever announced, as timeline and version.
local state = redis.call('HMGET', KEYS[1], 'epoch', 'timeline', 'version')
local timeline, version = tonumber(state[2] or 0), tonumber(state[3] or -1)
local new_timeline, new_version = tonumber(ARGV[1]), tonumber(ARGV[2])
if timeline > new_timeline or (timeline == new_timeline and version >= new_version) then
  return {timeline, version}
end
for _, field in ipairs(redis.call('HKEYS', KEYS[1])) do
  if field ~= 'epoch' and field ~= 'timeline' and field ~= 'version' then
    redis.call('UNLINK', field)
  end
end
redis.call('DEL', KEYS[1])
redis.call('HSET', KEYS[1], 'epoch', state[1] or ARGV[3], 'timeline', ARGV[1], 'version', ARGV[2])
-- Who follows this key drops its copies.
redis.call('SET', KEYS[2], ARGV[2])
return {new_timeline, new_version}
