-- The store has gone back to a version: it was restored. KEYS: todos:state, todos:version. ARGV: the version, a new epoch.
for _, field in ipairs(redis.call('HKEYS', KEYS[1])) do
  if field ~= 'epoch' and field ~= 'version' then
    redis.call('UNLINK', field)
  end
end
redis.call('DEL', KEYS[1])
redis.call('HSET', KEYS[1], 'epoch', ARGV[2], 'version', ARGV[1])
redis.call('SET', KEYS[2], ARGV[1])
return 1
