SELECT replace(replace(cell, 'plaintext-', 'plain text, '), 'download-', 'download of ') AS request,
  printf('%.3f', ratio) AS 'ratio', interval_3 AS interval, covers
FROM intervals
WHERE record = '2026-11-28-downloads-before' AND server = 'before' AND baseline = 'highwater'
ORDER BY place
