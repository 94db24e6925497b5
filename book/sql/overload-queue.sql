SELECT CAST(substr(cell, instr(cell, 'limit-') + 6) AS TEXT) AS 'limit', goodput_per_s AS 'in time per second',
  iif(cell LIKE 'no-%', 'without the queue', 'with it') AS 'queue'
FROM goodput
WHERE record = '2026-11-22-stress' AND cell LIKE '%queue-limit-%'
ORDER BY CAST(substr(cell, instr(cell, 'limit-') + 6) AS INTEGER)
