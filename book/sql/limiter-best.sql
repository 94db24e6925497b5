SELECT s.step AS phase, s.best AS 'best', printf('%.0f', s.goodput_per_s) AS 'answers in time per second'
FROM steps s
WHERE s.record = '2026-11-22-adaptive' AND s.cell = 'course' AND s.server = s.best AND s.step NOT LIKE 'down%'
ORDER BY s.rowid
