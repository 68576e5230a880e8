"""Owns kinds of answers (data): how each is asked for, and how a text that can be one looks.

General language in English, Chinese and Japanese. A kind that fits is a factor in the order of
hits, never a filter: these tables are guesses, and a wrong guess must not hide anything.
"""

# ruff: noqa: E501 - rows of data
from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache

_ASCII_WORD = r"(?<![a-z])(?:{})(?![a-z])"


@dataclass(frozen=True, slots=True)
class AnswerType:
    """One kind of answer."""

    name: str
    asked: re.Pattern[str]
    """In a lower-case question."""
    fits: re.Pattern[str]
    """In a sentence: lower-case, or as it was written if `cased`."""
    cased: bool = False


def _kind(name: str, words: str, cjk: str, fits: str, *, cased: bool = False) -> AnswerType:
    asked = re.compile(f"{_ASCII_WORD.format(words)}|{cjk}")
    return AnswerType(name, asked, re.compile(fits), cased)


_MONTHS = "january|february|march|april|may|june|july|august|september|october|november|december"
_DAYS = "(?:mon|tues|wednes|thurs|fri|satur|sun)days?"


@cache
def _answer_types() -> tuple[AnswerType, ...]:
    """All of them, compiled with the first question: it takes 12 ms that no start need wait for.

    Which kind a question asks for is decided by every ``asked`` that matches; often several do.
    """
    return (
        _kind(
            "time",
            r"when|what time|(?:what|which) (?:day|date|month|year|weekday|week|hour)|how (?:often|long"
            r"|soon|late|early)|until when|by when|deadlines?|dates?|times?|opening hours|schedule",
            "いつ|何時|何日|何曜|何月|何年|何分|何週|期限|締め?切|時刻|日付|日時|期間|どのくらいの頻度"
            "|什么时候|啥时候|何时|何時|几点|幾點|哪天|哪一天|哪年|哪个月|几号|几月|星期几|周几|多久"
            "|多长时间|日期|时间|截止|期限",
            r"\d{1,2}:\d\d|\d{4}-\d\d|\d{1,2}[./]\d{1,2}[./]\d{2,4}|(?<![a-z])(?:"
            + _MONTHS
            + "|"
            + _DAYS
            + r"|noon|midnight|tomorrow|today|tonight|yesterday|weekly|daily|monthly|hourly|o'clock"
            r"|every (?:day|night|week|month|year|hour|morning|evening)|(?:next|last) (?:week|month|year)"
            r")(?![a-z])|\d\s*(?:am|pm|a\.m|p\.m|seconds?|secs?|minutes?|mins?|hours?|days?|weeks?"
            r"|months?|years?|ms|s|h)(?![a-z])"
            "|[0-9一二三四五六七八九十两半]\\s*(?:年|月|日|号|時|时|点|點|分|秒|週|周|天|个月|か月|ヶ月)"
            "|星期[一二三四五六日天]|[周週][一二三四五六日末]|礼拜[一二三四五六日天]"
            "|[月火水木金土日]曜|午前|午後|上午|下午|中午|凌晨|早上|晚上|正午|深夜|明日|明天|今天|今日"
            "|昨天|昨日|来週|来月|下周|下个月|毎日|毎週|毎月|毎朝|每天|每周|每月|每晚",
        ),
        _kind(
            "money",
            r"how much|prices?|priced|costs?|pay|paid|payments?|fees?|budgets?|salary|salaries|rents?"
            r"|invoices?|amount|charged?|expensive|cheap|spend|spent|wages?|money|discount",
            "いくら|値段|料金|費用|価格|予算|家賃|給料|金額|代金|単価|円"
            "|多少钱|多少錢|价格|價格|费用|价钱|预算|租金|工资|薪水|金额|花了|收费|单价",
            r"[$€£¥₹₩]\s?\d|\d[\d,.]*\s?[kmw]?\s?(?:[$€£¥]|usd|eur|gbp|jpy|cny|rmb|chf|inr|dollars?"
            r"|euros?|pounds?|yen|yuan|cents?|bucks|francs?)"
            r"|[\d万千百]\s*(?:元|块|円|万|美元|欧元|日元|人民币|ドル|ユーロ|ポンド)|\d\s?%",
        ),
        _kind(
            "number",
            r"how (?:many|much|big|large|far|high|tall|old|heavy|fast|deep|wide)|numbers?|counts?|ports?"
            r"|versions?|phone|ids?|codes?|sizes?|limits?|percent(?:age)?|rates?|temperature|distance"
            r"|weight|height|width|length|speed|capacity|quota|threshold|maximum|minimum|timeout|pin"
            r"|passwords?|passcode|serial|extension|room|amount|total|rows?|score|age|level",
            "番号|いくつ|いくら|何[個人回本枚台件番号歳度点割%階杯行名基通つ]|ポート|バージョン|件数|数量"
            "|人数|回数|上限|下限|電話|暗証|サイズ|温度|距離|重さ|長さ|高さ|容量|割合|型番|号室"
            "|多少|几[个個台次人条件位张本号层度行名]|号码|端口|版本|编号|数量|电话|密码|上限|下限|大小"
            "|温度|距离|重量|长度|高度|容量|比例|阈值|超时|几",
            r"\d|(?<![a-z])(?:one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|dozen"
            r"|twenty|thirty|forty|fifty|hundred|thousand|million)(?![a-z])"
            "|[一二三四五六七八九十百千万两]+(?:个|個|台|次|人|条|件|位|张|本|号|层|度|つ|回|枚|名|倍)",
        ),
        _kind(
            "file",
            r"files?|paths?|folders?|director(?:y|ies)|config(?:uration)?s?|where|scripts?|modules?"
            r"|stored|saved|located?|location|logs?|settings?",
            "ファイル|パス|フォルダ|ディレクトリ|どこ|場所|保存先|設定|スクリプト|ログ"
            "|文件|路径|目录|文件夹|哪里|哪儿|在哪|位置|配置|脚本|日志|存在",
            r"(?:^|[\s`'\"(=:：、，。「（\u3040-\u9fff])(?:~|\.{1,2})?/[\w.@~-]+|[a-z]:\\"
            r"|(?<![\w.])[\w-]+\.(?:py|js|ts|tsx|jsx|rs|go|c|h|cpp|java|rb|sh|sql|md|txt|csv|json|ya?ml"
            r"|toml|ini|cfg|conf|env|log|html|css|xml|pdf|docx?|xlsx?|png|jpe?g|zip|gz|tar|db|sqlite"
            r"|lock|key|pem|service)(?![a-z])",
        ),
        _kind(
            "address",
            r"links?|urls?|address(?:es)?|websites?|sites?|e-?mails?|hosts?|hostname|domains?|ip|server"
            r"|endpoint|where",
            "リンク|アドレス|メール|ホスト|ドメイン|サイト|住所|サーバー"
            "|链接|网址|地址|邮箱|邮件|域名|主机|服务器|网站",
            r"https?://|[\w.+-]+@[\w-]+\.\w|\d{1,3}\.\d{1,3}\.\d{1,3}\.\d{1,3}"
            r"|(?<![\w.])[\w-]+\.(?:com|org|net|io|dev|jp|cn|de|uk|local|internal|example)(?![a-z])"
            r"|\d+ [\w ]{2,20}(?:street|road|avenue|lane|square)"
            "|[0-9一二三四五六七八九十]\\s*(?:丁目|番地|号楼|弄|栋)",
        ),
        _kind(
            "error",
            r"errors?|fail(?:s|ed|ing|ure|ures)?|wrong|exceptions?|crash(?:es|ed|ing)?|bugs?|problems?"
            r"|issues?|broken?|warnings?|tracebacks?|message|messages|happened",
            "エラー|失敗|故障|例外|不具合|障害|警告|異常|落ち|問題"
            "|错误|錯誤|报错|失败|异常|崩溃|出错|故障|警告|毛病|问题",
            r"(?<![a-z])(?:e|err|error)[-_ ]?\d{2,}|(?<![a-z])[a-z]*(?:error|exception|failure)(?![a-z])"
            r"|(?<![a-z])(?:e[a-z]{4,}|sig[a-z]{3,4}|errno)(?![a-z])|traceback|(?<![a-z])fail(?:s|ed)?"
            r"|(?<!\d)[45]\d\d(?!\d)|exit code|timed? ?out|refused|denied|segfault"
            "|エラー|失敗|例外|异常|错误|失败|报错|超时|拒绝",
        ),
        _kind(
            "command",
            r"commands?|flags?|options?|switch|arguments?|parameters?|run|invoke|execute|start|restart"
            r"|install|how (?:do|can|did|does|should|to)|type|syntax",
            "コマンド|オプション|フラグ|引数|実行|起動|どうや|どうすれ|方法|やり方|入力"
            "|命令|参数|选项|指令|执行|启动|怎么|如何|怎样|办法|方法",
            r"`[^`\n]+`|(?:^|\s)--?[a-z][\w-]+|(?:^|\s)\$ \w|(?<![a-z])(?:sudo|docker|git|npm|pip|make"
            r"|curl|systemctl|kubectl|python3?|bash|ssh|apt|brew)\s",
        ),
        _kind(
            "rule",
            r"rules?|must|never|always|allowed|allow|policy|policies|forbidden|should|may|can|prohibited"
            r"|permitted|required|requirement|convention|agreed?|supposed",
            "ルール|規則|決まり|禁止|必ず|絶対|して(?:は|も)(?:いけ|いい|よい)|べき|方針|約束|注意"
            "|规则|規則|规矩|规定|必须|不能|不许|不得|绝不|允许|可以|应该|禁止|政策|忌讳|约定|要求",
            r"(?<![a-z])(?:must|never|always|do not|don't|only|forbidden|not allowed|no one|nobody"
            r"|required?|mandatory|at least|at most|without exception)(?![a-z])"
            "|禁止|絶対|必ず|決して|ないで|ないこと|なければ|べき|すること|厳禁|のみ"
            "|必须|不能|不要|不准|不许|绝不|绝对|一律|不得|务必|只能|严禁|禁止|切勿",
        ),
        _kind(
            "person",
            r"who|whom|whose|name|names|called|contact|responsible|owner|manager|author|person|by whom",
            "誰|だれ|どなた|担当|責任者|名前|連絡先|どの人"
            "|谁|誰|哪位|什么人|负责人|联系人|名字|姓名|叫什么|作者",
            r"(?<![A-Za-z])[A-Z][a-z]+ [A-Z][a-z]+|(?:[a-z,]|\d) [A-Z][a-z]{2,}|@\w{3,}"
            "|さん|氏[はがのにを。、]|様|先生|君[はがのにを]|女士|小姐|经理|老师|部长|課長|部長|社長|主任"
            "|老[\u4e00-\u9fff]|小[\u4e00-\u9fff]{1,2}(?:负责|说|来)|由[\u4e00-\u9fff]{2,3}",
            cased=True,
        ),
        _kind(
            "place",
            r"where|which (?:city|country|room|place|floor|building|office|street|town)|place|location"
            r"|venue|city|country",
            "どこ|場所|何処|会場|都市|国|住所|何階|哪里|哪儿|在哪|哪个城市|地点|地方|场所|几楼|会场",
            r"(?<![a-z])(?:street|road|avenue|room|floor|building|office|station|city|north|south|east"
            r"|west|drawer|shelf|cabinet|basement|hall|gate|platform|behind|under|next to|opposite"
            r"|in the)(?![a-z])"
            "|[0-9一二三四五六七八九十]\\s*(?:階|楼|层|室|号室|号线|番線)|駅|市[のに、。内]|区|県|町|街|站|省|路"
            "|隣|裏|棚|引き出し|抽屉|柜|旁边|后面|对面|里面",
        ),
        _kind(
            "reason",
            r"why|reasons?|cause[sd]?|because|how come|what for",
            "なぜ|何故|どうして|理由|原因|为什么|为何|為什麼|原因|理由|怎么会",
            r"(?<![a-z])(?:because|since|due to|so that|in order to|reason|caused by|thanks to)(?![a-z])"
            "|から[。、]|ので|ため|おかげ|せいで|理由|因为|由于|所以|原因|为了|导致",
        ),
        _kind(
            "color",
            r"colou?rs?|painted|shade",
            "色|颜色|顏色",
            r"(?<![a-z])(?:red|orange|yellow|green|blue|purple|violet|pink|brown|black|white|gr[ae]y"
            r"|beige|ivory|turquoise|teal|navy|gold|silver|burgundy|maroon|cyan|magenta)(?![a-z])"
            "|[赤青黄緑紫茶黒白灰橙紺桃]|[红蓝绿黑粉棕银金]色?",
        ),
        _kind(
            "choice",
            r"which|what (?:did|do|does|kind|type|sort|is|are|was)|decided?|decision|choose|chose|chosen"
            r"|pick(?:ed)?|prefer(?:red)?|favou?rite|selected|use|used|using",
            "どれ|どちら|どの|何を使|決め|選|決定|採用|好き|哪个|哪種|哪种|哪家|哪款|选|決定|决定|采用|用什么|喜欢",
            r"(?<![a-z])(?:decided|decision|chose|chosen|picked|went with|going with|go with|will use"
            r"|we use|use|instead of|agreed|prefer|favou?rite|rather than|settled on|switched to)(?![a-z])"
            "|選び|選ん|決め|決定|採用|にしま|にする|にした|好き|决定|选择|选了|选用|采用|就用|改用|换成|喜欢",
        ),
    )


def kinds_asked(question: str) -> tuple[AnswerType, ...]:
    """The kinds of answers that this lower-case question may want."""
    return tuple(kind for kind in _answer_types() if kind.asked.search(question))
