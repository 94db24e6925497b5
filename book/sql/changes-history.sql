SELECT substr(started, 1, 10) AS 'day', tag AS 'version', title, technique AS 'what came',
  printf('%.2f', max(ratio) FILTER (WHERE shape = 'one by one')) AS 'over axum',
  max(interval_2) FILTER (WHERE shape = 'one by one') AS 'interval', max(covers) FILTER (WHERE shape = 'one by one') AS 'covers',
  printf('%.2f', max(ratio) FILTER (WHERE shape = 'pipelined')) AS '16 pipelined',
  max(interval_2) FILTER (WHERE shape = 'pipelined') AS 'its interval',
  max(covers) FILTER (WHERE shape = 'pipelined') AS 'it covers'
FROM history
GROUP BY tag
ORDER BY chapter_number
