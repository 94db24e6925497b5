SELECT CAST(cell AS REAL) AS 'times the capacity', settled AS 'demand ratio'
FROM signals
WHERE record = '2026-11-22-scaling' AND metric = 'http_scaling_demand_ratio' AND step != 'before'
ORDER BY 1
