WITH lost AS (
  SELECT server, replace(replace(cell, 'closed-', ''), 'x', '') AS load, step, 100.0 * lost / sent AS lost, p99_us / 1000 AS p99
  FROM steps WHERE record = '2026-11-28-fairness')
SELECT began.load || 'x' AS 'the one asks for', began.server AS gate,
  printf('%.1f %%', before.lost) AS 'the hundred lost, first 3 s', printf('%.1f %%', began.lost) AS 'now',
  printf('%.2f %%', later_before.lost) AS 'they lost afterwards', printf('%.2f %%', later.lost) AS 'now, afterwards',
  printf('%.1f %%', one_before.lost) AS 'the one lost', printf('%.1f %%', one.lost) AS 'now, the one'
FROM lost AS began
JOIN lost AS before ON before.server = began.server || '-before' AND before.load = began.load AND before.step = began.step
JOIN lost AS later ON later.server = began.server AND later.load = began.load AND later.step = 'many'
JOIN lost AS later_before ON later_before.server = before.server AND later_before.load = began.load AND later_before.step = 'many'
JOIN lost AS one ON one.server = began.server AND one.load = began.load AND one.step = 'one'
JOIN lost AS one_before ON one_before.server = before.server AND one_before.load = began.load AND one_before.step = 'one'
WHERE began.step = 'many-begin' AND began.server IN ('accept', 'ebpf')
ORDER BY CAST(began.load AS INTEGER), began.server DESC
