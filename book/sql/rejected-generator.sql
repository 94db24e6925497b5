SELECT e.value ->> 'connections' AS connections, e.value ->> 'client' AS 'over', e.value ->> 'figure' AS figure,
  printf('%.2f', e.value ->> 'median') AS median, printf('%.2f', e.value ->> 'least') AS least, printf('%.2f',
  e.value ->> 'most') AS most
FROM documents, json_each(document, '$.ratios') AS e
WHERE record = '2026-11-21-load'
ORDER BY 1, 2, 3
