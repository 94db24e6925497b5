SELECT cell, server, step AS third, printf('%,d', sent) AS requests, lost AS 'failed', printf('%.0f', p99_us) AS
  'p99, µs'
FROM steps
WHERE record = '2026-11-22-soak'
ORDER BY cell DESC, server, rowid
