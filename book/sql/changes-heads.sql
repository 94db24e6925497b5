SELECT iif(cell = 'least-pipelined', 'the least that HTTP allows', 'what a browser sends') AS 'head',
  printf('%.3f', ratio) AS 'ratio', interval_3 AS 'interval', covers, pairs
FROM intervals
WHERE record = '2026-11-27-heads-pipelined' AND server = 'before' AND baseline = 'highwater'
ORDER BY cell DESC
