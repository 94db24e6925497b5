WITH held AS (SELECT cell, max(at_s) - 10 AS s, count(*) AS samples
    FROM series
    WHERE record = '2026-11-22-scaling' AND name = 'http_scaling_demand_ratio' GROUP BY cell),
  ratio AS (SELECT cell, settled
    FROM signals
    WHERE record = '2026-11-22-scaling' AND metric = 'http_scaling_demand_ratio' AND step != 'before'),
  alarm AS (SELECT cell, rises, raised_after_s
    FROM signals
    WHERE record = '2026-11-22-scaling' AND metric = 'http_scaling_needs_scaleout' AND step != 'before')
SELECT rtrim(cell, 'x') AS 'times the capacity', printf('%.2f', settled) AS 'demand ratio', printf('%.0f', s) AS
  'held for, s', iif(rises = 0, 'never', printf('%.1f', raised_after_s)) AS 'rose after, s', rises AS 'alarms',
  samples AS 'times looked at'
FROM ratio
JOIN alarm USING (cell)
JOIN held USING (cell)
ORDER BY CAST(cell AS REAL)
