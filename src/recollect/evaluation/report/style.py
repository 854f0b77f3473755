"""How a report looks: light and dark, wide and narrow, on screen and on paper."""

STYLE = """
:root{--bg:#fff;--fg:#1b1f24;--soft:#57606a;--line:#d5dae0;--panel:#f6f8fa;--accent:#0b57a4;
--warn-bg:#fff4d6;--warn-line:#bf8700;
--a1:#0b62b8;--a2:#c44f00;--a3:#00805a;--a4:#b0307e;--a5:#7a5c00;--a6:#6246c7;--a7:#0083a3;
--a8:#c02b2b;--a9:#4f6b10;--a10:#5b6570}
@media (prefers-color-scheme:dark){:root{--bg:#14181d;--fg:#e6e9ed;--soft:#a0a9b4;--line:#343c46;
--panel:#1d232a;--accent:#7db7f2;--warn-bg:#33290f;--warn-line:#d6a63a;
--a1:#6cb2ff;--a2:#ff9a57;--a3:#3fd0a0;--a4:#f28ac9;--a5:#e0bd4d;--a6:#b3a2ff;--a7:#53cbe6;
--a8:#ff8080;--a9:#b0d067;--a10:#a9b3bd}}
*{box-sizing:border-box}
html{-webkit-text-size-adjust:100%}
body{margin:0;background:var(--bg);color:var(--fg);
font:16px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,"Helvetica Neue",Arial,sans-serif}
header,nav,main{max-width:78rem;margin:0 auto;padding:0 1.25rem}
header{padding-top:2rem}
h1{font-size:1.75rem;line-height:1.2;margin:0 0 .25rem;overflow-wrap:anywhere}
header p{margin:0;color:var(--soft)}
h2{font-size:1.25rem;margin:2.5rem 0 .75rem;padding-bottom:.3rem;
border-bottom:1px solid var(--line)}
h4{font-size:.9rem;margin:0 0 .5rem;color:var(--soft);font-weight:600;overflow-wrap:anywhere}
a{color:var(--accent)}
nav ol{list-style:none;display:flex;flex-wrap:wrap;gap:.25rem 1.1rem;padding:0;margin:1.25rem 0 0;
font-size:.9rem}
.tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(7.5rem,1fr));gap:.6rem;
margin:1.25rem 0 0}
.tiles div{background:var(--panel);border:1px solid var(--line);border-radius:6px;
padding:.5rem .75rem}
.tiles dt{font-size:.78rem;color:var(--soft)}
.tiles dd{margin:0;font-size:1.15rem;white-space:nowrap;font-variant-numeric:tabular-nums}
.notice{background:var(--warn-bg);border-left:4px solid var(--warn-line);padding:.6rem .9rem;
margin:0 0 1rem;overflow-wrap:anywhere}
.scroll{overflow-x:auto;margin:0 0 1rem}
.scroll:focus-visible{outline:2px solid var(--accent);outline-offset:2px}
table{border-collapse:separate;border-spacing:0;font-size:.875rem;font-variant-numeric:tabular-nums;min-width:100%}
caption{caption-side:bottom;text-align:left;color:var(--soft);font-size:.8rem;padding:.5rem 0;
max-width:min(60rem,calc(100vw - 2.5rem))}
.folded caption{max-width:min(60rem,calc(100vw - 4.75rem))}
.folded .folded caption{max-width:min(60rem,calc(100vw - 7rem))}
th,td{padding:.4rem .7rem;border-bottom:1px solid var(--line);vertical-align:top;text-align:left;
white-space:nowrap}
th{font-weight:500}
thead th{font-size:.8rem;color:var(--soft);font-weight:600;vertical-align:bottom;
border-bottom:1px solid var(--soft)}
.number{text-align:right}
td small,th small{display:block;color:var(--soft);font-size:.75rem;font-weight:400}
strong{font-weight:700}
tbody th:first-child{position:sticky;left:0;background:var(--bg)}
.agent{display:inline-flex;align-items:center;gap:.35rem}
.key{width:.85rem;height:.85rem;flex:none}
.score{display:flex;align-items:center;justify-content:flex-end;gap:.75rem}
.bar{width:8.5rem;height:.75rem;flex:none}
.bar .track{fill:var(--line)}.bar .band{fill:var(--accent);opacity:.4}.bar .mean{fill:var(--fg)}
.legend{list-style:none;display:flex;flex-wrap:wrap;gap:.3rem 1rem;padding:0;margin:0 0 .5rem;
font-size:.875rem}
.charts{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(100%,27rem),1fr));gap:1rem}
figure{margin:0;break-inside:avoid}
.chart{width:100%;height:auto;display:block}
.chart text{font-size:12px;fill:var(--soft)}
.chart .title{font-size:14px;font-weight:600;fill:var(--fg)}
.chart .grid{stroke:var(--line);fill:none}
.chart .axis{stroke:var(--soft);fill:none}
.chart .line{fill:none;stroke-width:2;stroke:var(--own)}
.chart .whisker{fill:none;stroke:var(--own);stroke-width:1.5;opacity:.55}
.a1{--own:var(--a1)}.a2{--own:var(--a2)}.a3{--own:var(--a3)}.a4{--own:var(--a4)}
.a5{--own:var(--a5)}.a6{--own:var(--a6)}.a7{--own:var(--a7)}.a8{--own:var(--a8)}
.a9{--own:var(--a9)}.a10{--own:var(--a10)}
[class^="a"]{fill:var(--own)}.mark{fill:var(--own)}
details{border:1px solid var(--line);border-radius:6px;margin:0 0 .6rem}
summary{cursor:pointer;padding:.5rem .9rem;font-weight:600;font-size:.925rem;overflow-wrap:anywhere}
details[open]>summary{border-bottom:1px solid var(--line)}
.folded{padding:.9rem .9rem .3rem}
.quote{border-left:3px solid var(--line);padding:0 0 0 .9rem;margin:0 0 1.25rem}
.quote dl{margin:0}.quote dt{font-size:.78rem;color:var(--soft)}.quote dd{margin:0 0 .5rem}
pre{font:13px/1.45 ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;background:var(--panel);
border-radius:6px;padding:.5rem .75rem;margin:0;white-space:pre-wrap;overflow-wrap:anywhere;
unicode-bidi:isolate;max-height:24rem;overflow:auto}
.code{margin:0 0 1rem}
.facts{display:grid;grid-template-columns:max-content 1fr;gap:.15rem 1rem;font-size:.875rem}
.facts dt{color:var(--soft)}.facts dd{margin:0;overflow-wrap:anywhere}
main{padding-bottom:4rem}
@media (max-width:40rem){header,nav,main{padding-left:.9rem;padding-right:.9rem}
th,td{padding:.35rem .5rem}.bar{width:5rem}h1{font-size:1.4rem}}
@media print{:root{--bg:#fff;--fg:#000;--soft:#444;--line:#bbb;--panel:#f4f4f4;--accent:#0b57a4;
--warn-bg:#fff;--warn-line:#000;--a1:#0b62b8;--a2:#c44f00;--a3:#00805a;--a4:#b0307e;--a5:#7a5c00;
--a6:#6246c7;--a7:#0083a3;--a8:#c02b2b;--a9:#4f6b10;--a10:#5b6570}
body{font-size:10pt}table{font-size:8pt}
td small,th small{font-size:6.5pt;white-space:nowrap}
nav{display:none}.scroll{overflow:visible}th,td{white-space:normal}
tbody th:first-child{position:static}pre{max-height:none}h2{break-after:avoid}tr{break-inside:avoid}
details::details-content{content-visibility:visible;height:auto}}
"""
