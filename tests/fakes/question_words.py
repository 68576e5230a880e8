"""Owns the words of `tests.fakes.questions`: things, attributes and talk in three languages."""

# ruff: noqa: E501 - rows of data
from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

Value = Callable[[random.Random], str]


@dataclass(frozen=True, slots=True)
class Wording:
    """One attribute: how it is said of a thing ``{e}`` with a value ``{v}``, and asked for."""

    says: str
    topic: str
    """Announces it without the value."""
    own: tuple[str, ...]
    endings: tuple[str, ...]
    reworded: tuple[str, ...]
    value: Value


@dataclass(frozen=True, slots=True)
class Language:
    """All words of one language."""

    firsts: list[str]
    seconds: list[str]
    joint: str
    nouns: list[str]
    verbs: list[str]
    adjectives: list[str]
    parts: list[str]
    filler: list[str]
    space: str
    mention: str
    answer: str
    rare: list[str]
    wordings: list[Wording]


def _clock(r: random.Random) -> str:
    return f"{r.randrange(24):02}:{r.choice((5, 10, 20, 35, 40, 50)):02}"


def _port(r: random.Random) -> str:
    return str(r.randrange(1100, 64000))


def _path(r: random.Random) -> str:
    return f"/{r.choice(('opt', 'var', 'home', 'mnt'))}/{r.choice(('north', 'lime', 'kite', 'brick', 'fern'))}{r.randrange(99)}/{r.choice(('main', 'state', 'notes'))}.{r.choice(('toml', 'db', 'txt'))}"


def _code(r: random.Random) -> str:
    return f"E{r.randrange(1000, 9999)}"


def _flag(r: random.Random) -> str:
    return f"`{r.choice(('pack', 'ship', 'sweep', 'graft'))} --{r.choice(('dry', 'deep', 'twice', 'quiet'))}-{r.choice(('run', 'mode', 'pass'))}`"


_EN_NAMES = (
    "Marta Oliveira",
    "Jonas Weber",
    "Priya Nair",
    "Tom Hakala",
    "Ines Duarte",
    "Karl Moen",
)
_ZH_NAMES = ("陈晓雯", "李建国", "王思远", "赵美玲", "周文博", "孙丽华")
_JA_NAMES = ("佐藤健一さん", "高橋由美さん", "田中翔太さん", "伊藤恵さん", "山本大輔さん")


def _day_en(r: random.Random) -> str:
    return f"{r.choice(('March', 'April', 'June', 'August', 'October'))} {r.randrange(1, 29)}"


def _day_cjk(r: random.Random) -> str:
    return f"{r.randrange(1, 13)}月{r.randrange(1, 29)}日"


def _of(*choices: str) -> Value:
    return lambda r: r.choice(choices)


ENGLISH = Language(
    firsts=["billing", "harbor", "orchard", "lantern", "copper", "granite", "willow", "summit", "river", "velvet", "amber", "cedar", "falcon", "marble", "ember", "canyon", "meadow", "pepper", "saddle", "thunder", "violet", "walnut", "zephyr", "anchor", "basil", "cobalt", "drift", "ginger", "hazel", "indigo", "juniper", "kestrel", "lagoon", "maple", "nectar", "onyx", "pebble", "quartz", "raven", "saffron", "tulip", "umber", "vapor", "winter", "yarrow", "zinc", "birch", "coral", "dune", "elm"],
    seconds=["gateway", "printer", "scheduler", "warehouse", "dashboard", "importer", "archive", "scanner", "bakery", "garden", "boiler", "kitchen", "workshop", "newsletter", "elevator", "mailbox", "registry", "greenhouse", "turbine", "library", "playlist", "caravan", "garage", "fountain", "chapel", "observatory", "ferry", "bridge", "museum", "stadium"],
    joint=" ",
    nouns=["report", "invoice", "meeting", "sample", "branch", "customer", "shelf", "ticket", "chart", "filter", "pattern", "route", "window", "screen", "battery", "cable", "ladder", "basket", "carpet", "bottle", "curtain", "helmet", "journal", "kettle", "letter", "mirror", "needle", "pencil", "ribbon", "ticket", "umbrella", "village", "wallet", "yogurt", "zipper", "engine", "folder", "signal", "market", "harvest", "lesson", "picture", "question", "summer", "winter", "breakfast"],
    verbs=["check", "move", "paint", "repair", "rename", "collect", "compare", "borrow", "deliver", "explain", "follow", "gather", "inspect", "measure", "polish", "replace", "review", "sketch", "test", "unpack", "visit", "wash", "wrap", "order", "plan", "count", "sort", "print", "trim", "fold"],
    adjectives=["old", "quiet", "broken", "narrow", "bright", "heavy", "simple", "wooden", "public", "early", "empty", "gentle", "hollow", "modern", "plain", "rough", "sharp", "steady", "tall", "useful", "yellow", "cold", "dusty", "fresh"],
    parts=["port", "owner", "password", "rent", "opening", "deadline", "budget", "color", "error", "command", "folder", "rule", "supplier", "backup", "delivery"],
    filler=[
        "We should {v} the {a} {n} before the {m} arrives.",
        "The {e} looked {a} again, so I had to {v} the {n}.",
        "I will {v} the {p} of the {e} some other day.",
        "Somebody asked about the {p}, but nobody could {v} it.",
        "There are {x} {n} entries that mention the {e}.",
        "Could you {v} my {n} and the {a} {m}?",
        "Yesterday the {n} was {a} and the {m} was not.",
        "Please do not forget the {n} near the {e}.",
        "In row {x} the {m} is listed twice.",
        "The {p} list needs a {a} {n}.",
    ],
    space=" ",
    mention="By the way, {w} belongs to the {e}.",
    answer="It is {v}.",
    rare=[],
    wordings=[
        Wording("The {e} listens on port {v}.", "Now the port that the {e} listens on.",
                ("Which port does the {e} listen on?", "what port is the {e} listening on"),
                ("{e} listening ports", "the port the {e} listened to?"),
                ("How do I connect to the {e}?",), _port),
        Wording("{v} owns the {e} from now on.", "About who owns the {e} from now on:",
                ("Who owns the {e}?", "who owns the {e} now"),
                ("Who was owning the {e}?", "{e} owned by whom"),
                ("Who is responsible for the {e}?", "whom do I call about the {e}"), _of(*_EN_NAMES)),
        Wording("The {e} opens at {v} every morning.", "When the {e} opens every morning:",
                ("When does the {e} open?", "what time does the {e} open in the morning"),
                ("{e} opening time", "When was the {e} opened in the mornings?"),
                ("From what hour can people enter the {e}?",), _clock),
        Wording("The monthly rent for the {e} is {v} euros.", "The monthly rent for the {e}, then.",
                ("How much is the monthly rent for the {e}?", "what's the rent of the {e}?"),
                ("how much are we renting the {e} for", "{e} rents per month?"),
                ("What do we pay each month to use the {e}?",), _port),
        Wording("The deadline for the {e} is {v}.", "We have to settle the deadline for the {e}.",
                ("When is the deadline for the {e}?", "{e} deadline?"),
                ("deadlines of the {e}", "What were the {e} deadlines?"),
                ("By which date must the {e} be finished?",), _day_en),
        Wording("Settings of the {e} live in {v}.", "Where the settings of the {e} live:",
                ("Where do the settings of the {e} live?", "which file has the {e} settings?"),
                ("the {e}'s setting lives where?", "path of the {e} setting"),
                ("Which file configures the {e}?",), _path),
        Wording("When it is full, the {e} fails with error {v}.", "The error that a full {e} fails with:",
                ("Which error does the {e} fail with when it is full?", "what error when the {e} is full"),
                ("{e} failing when full, which errors?", "error of the {e} when it failed"),
                ("What code did we see from the {e}?",), _code),
        Wording("Restart the {e} with {v}.", "How to restart the {e}:",
                ("How do I restart the {e}?", "command to restart the {e}"),
                ("restarting the {e}, which command?", "How was the {e} restarted?"),
                ("What do I type to bring the {e} up again?",), _flag),
        Wording("Never touch the {e} {v}.", "One rule, when never to touch the {e}:",
                ("When must we never touch the {e}?", "rule about touching the {e}"),
                ("touching the {e} is never allowed when?",),
                ("What is forbidden with the {e}?",),
                _of("on Fridays", "during the audit", "while the backup runs", "before the owner agrees")),
        Wording("We painted the {e} in {v}.", "The color we painted the {e} in:",
                ("What color did we paint the {e}?", "in which color was the {e} painted"),
                ("{e} painting color?", "color paints of the {e}"),
                ("What does the {e} look like now?",),
                _of("dark green", "ivory", "sky blue", "burgundy", "orange")),
    ],
)  # fmt: skip

CHINESE = Language(
    firsts=["蓝湾", "星河", "青松", "铜雀", "白鹭", "红枫", "金穗", "银杏", "远山", "竹林", "海棠", "云杉", "玉兰", "石榴", "枣庄", "麦田", "荷塘", "雪松", "梧桐", "晨光", "暮色", "飞鸟", "骏马", "灵犀", "琥珀", "珊瑚", "翡翠", "水晶", "火花", "微风", "长城", "东篱", "南桥", "西岭", "北斗"],
    seconds=["网关", "仓库", "食堂", "车间", "花园", "图书馆", "打印机", "锅炉", "博客", "邮箱", "电梯", "温室", "面包店", "车库", "喷泉", "码头", "剧场", "旅馆", "药房", "操场", "画廊", "渡轮", "工坊", "报社", "球馆"],
    joint="",
    nouns=["报告", "发票", "会议", "样本", "分支", "客户", "货架", "票据", "图表", "模板", "路线", "窗户", "屏幕", "电池", "电缆", "梯子", "篮子", "地毯", "瓶子", "窗帘", "头盔", "日记", "水壶", "信件", "镜子", "铅笔", "丝带", "雨伞", "村庄", "钱包", "酸奶", "拉链", "发动机", "信号", "市场", "收成", "课程", "照片"],
    verbs=["检查", "移动", "粉刷", "修理", "收集", "比较", "借用", "配送", "解释", "跟进", "整理", "测量", "擦亮", "更换", "审阅", "测试", "拆开", "拜访", "清洗", "包装", "订购", "计划", "清点", "排序", "打印"],
    adjectives=["旧的", "安静的", "坏掉的", "狭窄的", "明亮的", "沉重的", "简单的", "木制的", "空的", "温和的", "现代的", "朴素的", "粗糙的", "锋利的"],
    parts=["端口", "负责人", "密码", "租金", "开门", "截止", "预算", "颜色", "错误", "命令", "目录", "规矩", "供应商", "备份", "送货"],
    filler=[
        "我们应该在{m}到达之前{v}{a}{n}。",
        "{e}又显得不太对劲，所以我只好{v}{n}。",
        "改天我再{v}{e}的{p}。",
        "有人问起{p}，但没有人会{v}。",
        "一共有{x}条{n}提到{e}。",
        "你能帮我{v}{n}和{a}{m}吗？",
        "昨天{n}还好好的，{m}就不行。",
        "别忘了{e}旁边的{n}。",
        "第{x}行里{m}写了两遍。",
        "{p}清单还缺一个{a}{n}。",
    ],
    space="",
    mention="顺便说一句，{w}放在{e}那边了。",
    answer="就定{v}。",
    rare=["鲸", "鹰", "墨", "砚", "琴", "棋", "鹿", "蜂", "桨", "帆", "橘子", "蘑菇", "琵琶", "蟋蟀", "骆驼", "樟脑", "芒果", "葫芦", "蚂蚁", "蜻蜓", "麒麟", "茉莉", "榛子", "鹦鹉"],
    wordings=[
        Wording("{e}监听的端口是{v}。", "现在说{e}监听的端口。",
                ("{e}监听的端口是多少？", "{e}监听哪个端口"), ("端口，{e}监听的", "{e}在监听什么端口呢"),
                ("怎么连上{e}？",), _port),
        Wording("以后由{v}负责{e}。", "以后{e}由谁负责：",
                ("谁负责{e}？", "{e}以后由谁负责"), ("负责{e}的是谁", "{e}的负责人"),
                ("{e}出事了找谁？",), _of(*_ZH_NAMES)),
        Wording("{e}每天早上{v}开门。", "{e}每天早上开门的事：",
                ("{e}早上几点开门？", "{e}什么时候开门"), ("开门时间，{e}", "{e}是几点开的门"),
                ("最早什么时候可以进{e}？",), _clock),
        Wording("{e}每个月的租金是{v}元。", "再说{e}每个月的租金。",
                ("{e}每个月租金多少钱？", "{e}的租金是多少"), ("租{e}一个月多少钱", "租金多少，{e}那边"),
                ("我们为{e}按月要付多少？",), _port),
        Wording("{e}的截止日期是{v}。", "{e}的截止日期要定一下。",
                ("{e}的截止日期是哪天？", "{e}什么时候截止"), ("截止到几号，{e}", "{e}哪一天截止的"),
                ("{e}最晚什么时候要做完？",), _day_cjk),
        Wording("{e}的配置放在{v}里。", "{e}的配置放在哪里：",
                ("{e}的配置放在哪里？", "{e}的配置在哪个文件"), ("配置文件，{e}的", "{e}放配置的路径"),
                ("想改{e}的设置要打开什么？",), _path),
        Wording("{e}满了会报错误{v}。", "{e}满了会报什么错误：",
                ("{e}满了会报什么错误？", "{e}报的错误是什么"), ("错误代码，{e}满的时候", "{e}满时报错"),
                ("{e}那次出了什么毛病？",), _code),
        Wording("重启{e}要用{v}。", "重启{e}的办法：",
                ("怎么重启{e}？", "重启{e}用什么命令"), ("{e}重启命令", "{e}是怎么重启的"),
                ("{e}停了之后怎么再拉起来？",), _flag),
        Wording("绝不能在{v}动{e}。", "什么时候绝不能动{e}：",
                ("什么时候绝不能动{e}？", "动{e}有什么规矩"), ("不能动{e}的时候是", "{e}何时不能动"),
                ("{e}有什么忌讳？",), _of("周五", "审计期间", "备份运行时", "老板同意之前")),
        Wording("我们把{e}刷成了{v}。", "我们把{e}刷成的颜色：",
                ("我们把{e}刷成了什么颜色？", "{e}刷的什么颜色"), ("刷{e}的颜色", "{e}刷成啥颜色了"),
                ("{e}现在看起来怎么样？",), _of("深绿色", "象牙白", "天蓝色", "酒红色")),
    ],
)  # fmt: skip

JAPANESE = Language(
    firsts=["青波", "星川", "若松", "銅山", "白鷺", "紅葉", "金穂", "銀杏", "遠山", "竹林", "海棠", "雲杉", "木蓮", "石榴", "麦畑", "蓮池", "雪松", "桐原", "朝霧", "夕凪", "飛鳥", "駿馬", "琥珀", "珊瑚", "翡翠", "水晶", "火花", "微風", "東雲", "南橋", "西嶺", "北斗"],
    seconds=["ゲートウェイ", "倉庫", "食堂", "工場", "庭園", "図書館", "プリンター", "ボイラー", "ブログ", "メールボックス", "エレベーター", "温室", "パン屋", "車庫", "噴水", "埠頭", "劇場", "旅館", "薬局", "運動場", "画廊", "フェリー", "工房", "新聞社", "体育館"],
    joint="",
    nouns=["報告書", "請求書", "会議", "見本", "支店", "顧客", "棚", "切符", "図表", "雛形", "経路", "窓", "画面", "電池", "ケーブル", "梯子", "籠", "絨毯", "瓶", "カーテン", "兜", "日記", "やかん", "手紙", "鏡", "鉛筆", "リボン", "傘", "村", "財布", "ヨーグルト", "信号", "市場", "収穫", "授業", "写真"],
    verbs=["確認", "移動", "修理", "収集", "比較", "借用", "配達", "説明", "整理", "測定", "交換", "検討", "試験", "訪問", "洗浄", "包装", "注文", "計画", "集計", "印刷"],
    adjectives=["古い", "静かな", "壊れた", "狭い", "明るい", "重い", "簡単な", "木製の", "空の", "穏やかな", "質素な", "粗い", "鋭い"],
    parts=["ポート", "担当者", "暗証", "家賃", "開店", "締切", "予算", "色", "エラー", "コマンド", "フォルダ", "規則", "仕入先", "控え", "配送"],
    filler=[
        "{m}が届く前に{a}{n}を{v}しましょう。",
        "{e}の様子がまた変だったので、{n}を{v}しました。",
        "{e}の{p}はまた今度{v}します。",
        "{p}のことを聞かれましたが、誰も{v}できませんでした。",
        "{e}に触れている{n}が{x}件あります。",
        "{n}と{a}{m}を{v}してもらえますか？",
        "昨日は{n}は大丈夫でしたが、{m}はだめでした。",
        "{e}の近くの{n}を忘れないでください。",
        "{x}行目に{m}が二度書かれています。",
        "{p}の一覧に{a}{n}が足りません。",
    ],
    space="",
    mention="ちなみに、{w}は{e}に置いてあります。",
    answer="{v}です。",
    rare=["鯨", "鷹", "墨", "硯", "琴", "鹿", "蜂", "櫂", "帆", "蟹", "蜜柑", "茸狩", "琵琶", "駱駝", "樟脳", "瓢箪", "胡桃", "蜻蛉", "麒麟", "茉莉", "榛名", "鸚鵡", "ゴム", "サボテン"],
    wordings=[
        Wording("{e}はポート{v}で待ち受けます。", "次は{e}が待ち受けるポートです。",
                ("{e}はどのポートで待ち受けますか？", "{e}のポートは何番？"),
                ("待ち受けているポート、{e}の", "{e}が待ち受けたポート番号"),
                ("{e}にはどうやって接続するの？",), _port),
        Wording("{e}の担当は今後{v}です。", "{e}の今後の担当について。",
                ("{e}の担当は誰ですか？", "今後{e}を担当するのは誰"), ("担当者は誰、{e}の", "誰が{e}を担当した？"),
                ("{e}のことは誰に聞けばいい？",), _of(*_JA_NAMES)),
        Wording("{e}は毎朝{v}に開きます。", "{e}が毎朝開く時刻のこと。",
                ("{e}は毎朝何時に開きますか？", "{e}はいつ開く？"), ("毎朝開くのは何時、{e}", "{e}が開いたのは何時"),
                ("{e}には何時から入れる？",), _clock),
        Wording("{e}の家賃は月{v}円です。", "{e}の家賃の話です。",
                ("{e}の家賃はいくらですか？", "{e}の家賃は月いくら"), ("家賃いくら、{e}", "月の家賃、{e}は"),
                ("{e}に毎月いくら払っている？",), _port),
        Wording("{e}の締切は{v}です。", "{e}の締切を決めます。",
                ("{e}の締切はいつですか？", "{e}の締切は何日"), ("締切日、{e}", "{e}、締切はいつだった"),
                ("{e}はいつまでに終わらせる？",), _day_cjk),
        Wording("{e}の設定は{v}にあります。", "{e}の設定がある場所です。",
                ("{e}の設定はどこにありますか？", "{e}の設定ファイルはどこ"), ("設定の場所、{e}", "{e}設定のパス"),
                ("{e}を変えるにはどのファイルを開く？",), _path),
        Wording("{e}は満杯になるとエラー{v}を出します。", "{e}が満杯のときのエラーです。",
                ("{e}が満杯になると何のエラーが出ますか？", "{e}のエラーは何"), ("エラー番号、満杯の{e}", "満杯で{e}が出したエラー"),
                ("{e}の調子が悪いとき何と表示された？",), _code),
        Wording("{e}の再起動は{v}で行います。", "{e}の再起動の方法です。",
                ("{e}の再起動はどうやりますか？", "{e}を再起動するコマンドは？"), ("再起動コマンド、{e}", "{e}を再起動した方法"),
                ("止まった{e}を立ち上げ直すには？",), _flag),
        Wording("{v}は絶対に{e}に触らないこと。", "絶対に{e}に触らない時のこと。",
                ("{e}に絶対に触ってはいけないのはいつ？", "{e}に触るときの規則"), ("触らない規則、{e}", "{e}に触れないのはいつ"),
                ("{e}の禁止事項は？",), _of("金曜日", "監査中", "控えの作成中", "部長の許可前")),
        Wording("{e}を{v}に塗りました。", "{e}を塗った色の話。",
                ("{e}を何色に塗りましたか？", "{e}は何色"), ("塗った色、{e}", "{e}の塗り色"),
                ("{e}は今どんな見た目？",), _of("深緑", "象牙色", "空色", "葡萄色")),
    ],
)  # fmt: skip

LANGUAGES = {"en": ENGLISH, "zh": CHINESE, "ja": JAPANESE}
