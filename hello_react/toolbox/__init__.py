"""Ready-made tools, one file each (registered in chapter 02, compared with your own in chapter 11).

calculator    `calculate`: arithmetic, exact where it can be, bounded, never `eval`
search        `search`: Google through SerpApi
encyclopedia  `Encyclopedia`: Search and Lookup in a small collection that ships with the package
wikipedia     `Wikipedia`: Search and Lookup as in the ReAct paper, over the MediaWiki API
weather       `get_weather`: OpenWeather, or a service without a key
clock         `now`: date and time in a place
"""
