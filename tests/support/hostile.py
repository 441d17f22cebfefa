"""Names that try to be more than names."""

from ecgr.report.words import visible

HOSTILE = (
    "<script>window.hacked = 1</script>",
    "</script><script>window.hacked = 1</script>",
    "</style><script>window.hacked = 1</script>",
    "</title><img src=x onerror=window.hacked=1>",
    "</textarea><svg onload=window.hacked=1>",
    "<img src=x onerror=window.hacked=1>",
    "<svg/onload=window.hacked=1>",
    "<b>bold</b><i>slanted</i>",
    "<a href='https://example.org'>a link</a>",
    '<a href="javascript:window.hacked=1">a link</a>',
    "javascript:window.hacked=1",
    "data:text/html,<script>window.hacked=1</script>",
    '" onload="window.hacked=1',
    "' onmouseover='window.hacked=1",
    "` onfocus=`window.hacked=1",
    '"><script>window.hacked=1</script>',
    "'><script>window.hacked=1</script>",
    "--><script>window.hacked=1</script>",
    "<!-- a comment <script>",
    "<![CDATA[<script>window.hacked=1</script>]]>",
    "{{ 7 * 7 }}{% for x in y %}",
    "{% raw %}${window.hacked=1}#{1}",
    "%{customdata[0]}<br>%{x}<extra>more</extra>",
    "$\\frac{1}{2}$ and $$\\href{javascript:1}{x}$$",
    "&lt;script&gt;window.hacked=1&lt;/script&gt;",
    "&#60;script&#62;&#x6a;&amp;amp;",
    "<span style='color:red' onclick='1'>red</span>",
    "<sup>up</sup><sub>down</sub><br><em>loud</em>",
    "<style>body { display: none }</style>",
    "<meta http-equiv=refresh content='0;url=//example.org'>",
    "<base href=//example.org><form action=//example.org>",
    "<iframe srcdoc='<script>parent.hacked=1</script>'>",
    "<object data=//example.org><embed src=//example.org>",
    "a\u202etxt.exe\u2066 turned\u2069",
    "a\x00b\x07c\x1b[31mred",
    "two\nlines\r\nand\ttabs",
    "\u2028\u2029 line ends of another kind",
    "lone \ud800 surrogate \udfff here",
    "__proto__",
    "../../etc/passwd; rm -rf / \\ ${HOME} %s %n",
)
"""Forty of them."""


def harmless(number: int) -> str:
    """A plain name as long as a hostile one looks."""
    return f"{number:02d}{'x' * (len(shown(number)) - 2)}"


def shown(number: int) -> str:
    """How a hostile name is to appear."""
    text: str = visible(HOSTILE[number])
    return text
