WITH lost AS (
  SELECT server, replace(replace(cell, 'closed-', ''), 'x', '') AS load, step, 100.0 * lost / sent AS lost, p99_us / 1000 AS p99
  FROM steps WHERE record = '2026-11-27-fairness-accept')
SELECT began.load || 'x' AS 'the one asks for',
  CASE began.server WHEN 'accept' THEN 'accept' WHEN 'accept-before' THEN 'accept, before' ELSE 'ebpf' END AS gate,
  printf('%.1f %%', began.lost) AS 'the hundred lose, first 3 s', printf('%.1f %%', later.lost) AS 'afterwards',
  printf('%.0f', later.p99) AS 'their p99, ms', printf('%.1f %%', one.lost) AS 'the one loses'
FROM lost AS began JOIN lost AS later USING (server, load) JOIN lost AS one USING (server, load)
WHERE began.step = 'many-begin' AND later.step = 'many' AND one.step = 'one'
ORDER BY CAST(began.load AS INTEGER), began.server DESC
