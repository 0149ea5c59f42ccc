package etcdconf

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
)

func TestCheckAdvertise(t *testing.T) {
	peers, clients := []string{"http://etcd-0.example.com:2380"}, []string{"http://etcd-0.example.com:2379"}
	local := []string{"http://127.0.0.1:2380"}
	tests := []struct {
		name           string
		file           string
		size           int
		peers, clients []string
		want           []string // none: no error
	}{
		{"absent", "", 3, peers, clients, nil},
		{"equal", "initial-advertise-peer-urls: http://etcd-0.example.com:2380\nadvertise-client-urls: http://etcd-0.example.com:2379", 3, peers, clients, nil},
		{"equal but for case and dot", "initial-advertise-peer-urls: http://ETCD-0.example.com.:2380", 3, peers, clients, nil},
		{"localhost", "initial-advertise-peer-urls: http://localhost:2380", 3, peers, clients, []string{"FILE:5: initial-advertise-peer-urls", "http://localhost:2380", "3 members", "discovery says \"http://etcd-0.example.com:2380\""}},
		{"loopback for clients", "advertise-client-urls: http://127.0.0.1:2379", 3, peers, clients, []string{"FILE:5: advertise-client-urls", "http://127.0.0.1:2379", "http://etcd-0.example.com:2379"}},
		{"loopback for clients, unknown to discovery", "advertise-client-urls: http://[::1]:2379", 3, peers, nil, []string{"FILE:5: advertise-client-urls", "[::1]", "nothing"}},
		{"another host", "initial-advertise-peer-urls: http://etcd-9.example.com:2380", 3, peers, clients, []string{"FILE:5: initial-advertise-peer-urls", "etcd-9", "etcd-0"}},
		{"another port", "initial-advertise-peer-urls: http://etcd-0.example.com:2390", 3, peers, clients, []string{"2390", "2380"}},
		{"one too many", "initial-advertise-peer-urls: http://etcd-0.example.com:2380,http://10.0.0.1:2380", 3, peers, clients, []string{"10.0.0.1"}},
		{"another host for clients", "advertise-client-urls: http://lb.example.com:2379", 3, peers, clients, nil},
		{"clients unknown to discovery", "advertise-client-urls: http://lb.example.com:2379", 3, peers, nil, nil},
		{"all on loopback", "initial-advertise-peer-urls: http://127.0.0.1:2380", 3, local, nil, nil},
		{"localhost alone, discovery elsewhere", "initial-advertise-peer-urls: http://localhost:2380", 1, peers, clients, []string{"localhost", "etcd-0"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c, file, err := load(t, static+tt.file+"\n", nil)
			if err != nil {
				t.Fatal(err)
			}
			expect(t, c.CheckAdvertise(tt.size, tt.peers, tt.clients), file, tt.want)
		})
	}
}

func expect(t *testing.T, err error, file string, want []string) {
	t.Helper()
	if len(want) == 0 {
		if err != nil {
			t.Errorf("unexpected error: %v", err)
		}
		return
	}
	if err == nil {
		t.Fatal("no error")
	}
	for _, w := range want {
		if w = strings.ReplaceAll(w, "FILE", file); !strings.Contains(err.Error(), w) {
			t.Errorf("error %q has no %q", err, w)
		}
	}
}

func TestCheckListen(t *testing.T) {
	self, loop := netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("127.0.0.2")
	tests := []struct {
		name, listen string
		size         int
		self         []netip.Addr
		want         []string
	}{
		{"absent", "", 3, nil, []string{"listen-peer-urls is absent", "http://localhost:2380", "http://0.0.0.0:2380"}},
		{"absent, alone", "", 1, nil, nil},
		{"localhost", "http://localhost:2380", 3, nil, []string{"FILE:2: listen-peer-urls", "http://localhost:2380", "2 members"}},
		{"everywhere", "http://0.0.0.0:2380", 3, []netip.Addr{self}, nil},
		{"localhost and more", "http://localhost:2380,http://10.0.0.1:2380", 3, nil, nil},
		{"loopback, address unknown", "http://127.0.0.1:2380", 3, nil, nil},
		{"loopback, address elsewhere", "http://127.0.0.1:2380", 3, []netip.Addr{self}, []string{"FILE:2", "http://127.0.0.1:2380"}},
		{"loopback cluster", "http://127.0.0.1:2380", 3, []netip.Addr{loop}, nil},
		{"loopback cluster, localhost", "http://localhost:2380", 3, []netip.Addr{loop}, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			text := "data-dir: /d\n"
			if tt.listen != "" {
				text += "listen-peer-urls: " + tt.listen + "\n"
			}
			c, file, err := load(t, text, nil)
			if err != nil {
				t.Fatal(err)
			}
			expect(t, c.CheckListen(tt.size, tt.self...), file, tt.want)
		})
	}
}

func TestListeners(t *testing.T) {
	tests := []struct {
		name string
		c    Config
		peer string
		cl   string
	}{
		{"defaults", Config{}, "[http localhost 2380]", "[http localhost 2379]"},
		{"given", Config{ListenPeerURLs: []string{"https://[::]:1"}, ListenClientURLs: []string{"http://10.0.0.1:2", "unix:///run/e.sock"}}, "[https :: 1]", "[http 10.0.0.1 2] [unix /run/e.sock 0]"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			for _, side := range []struct {
				got  []Listener
				want string
			}{{tt.c.PeerListeners(), tt.peer}, {tt.c.ClientListeners(), tt.cl}} {
				var got []string
				for _, l := range side.got {
					got = append(got, fmt.Sprintf("[%s %s %d]", l.Scheme, l.Host, l.Port))
				}
				if strings.Join(got, " ") != side.want {
					t.Errorf("got %s, want %s", got, side.want)
				}
			}
			for i, l := range tt.c.ClientListeners() {
				if len(tt.c.ListenClientURLs) > 0 && l.String() != tt.c.ListenClientURLs[i] {
					t.Errorf("%s is printed as %s", tt.c.ListenClientURLs[i], l)
				}
			}
		})
	}
	if got := (Listener{"https", "::", 2379}).URL("2001:db8::1"); got != "https://[2001:db8::1]:2379" {
		t.Errorf("IPv6 without brackets: %s", got)
	}
}

func TestCheckInitialCluster(t *testing.T) {
	three := []Peer{{"a", []string{"http://a.example.org:2380"}}, {"b", []string{"http://b.example.org:2380"}}, {"c", []string{"http://c.example.org:2380", "http://10.0.0.3:2380"}}}
	tests := []struct {
		name, list string
		want       []string
	}{
		{"absent", "", nil},
		{"equal", "b=http://b.example.org:2380,a=http://a.example.org:2380,c=http://c.example.org:2380,c=http://10.0.0.3:2380", nil},
		{"other names", "0=http://a.example.org:2380,1=http://B.example.org:2380,x=http://c.example.org:2380,x=http://10.0.0.3:2380", nil},
		{"frozen with one member", "a=http://a.example.org:2380", []string{"FILE:5: initial-cluster", "1 members", "3 members", "http://b.example.org:2380"}},
		{"localhost", "default=http://localhost:2380", []string{"http://localhost:2380"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c, file, err := load(t, static+"initial-cluster: "+tt.list+"\n", nil)
			if err != nil {
				t.Fatal(err)
			}
			expect(t, c.CheckInitialCluster(three), file, tt.want)
		})
	}
}

// TestUnexpandedPaths: what a shell would have replaced is told with the value.
func TestUnexpandedPaths(t *testing.T) {
	for path, want := range map[string]string{
		`"/var/lib/etcd"`: "a quote", "'/var/lib/etcd'": "a quote", "/var/lib/`hostname`": "a quote",
		"$DATA/etcd": "a $", "${ETCD_DATA}": "a $", "$(DATA_DIR)/etcd": "a $", "/var/lib/$NAME": "a $",
		"~/etcd": "a ~", "~etcd/data": "a ~", "/srv/~/etcd": "a ~", "{{ data_dir }}": "a brace", "/data/{a,b}": "a brace", " /var/lib/etcd": "a blank",
		"/var/lib/etcd": "", "data": "", "/backup~1/my data/etcd-0.2": "",
	} {
		for _, flag := range []string{"data-dir", "wal-dir"} {
			env := []string{"ETCD_DATA_DIR=/d", "ETCD_LISTEN_PEER_URLS=http://0.0.0.0:2380"}
			env = append([]string{variable(flag) + "=" + path}, env...)
			_, err := Load("", nil, env)
			var text []string
			if want != "" {
				text = []string{"variable " + variable(flag), " is " + path + ", with " + want}
			}
			expect(t, err, "", text)
		}
	}
}

// TestCheckInitialAlone: what is wrong with an initial-cluster in itself is told
// before discovery is asked.
func TestCheckInitialAlone(t *testing.T) {
	const three = "a=http://a.example.org:2380,b=http://b.example.org:2380,c=http://c.example.org:2380"
	tests := []struct {
		name, file string
		size       int
		want       []string
	}{
		{"absent", "", 3, nil},
		{"right", "initial-cluster: " + three + "\n", 3, nil},
		{"size unknown", "initial-cluster: " + three + "\n", 0, nil},
		{"another size", "initial-cluster: " + three + "\n", 5, []string{"FILE:5: initial-cluster", "lists 3 members", "size is 5"}},
		{"one URL twice", "initial-cluster: a=http://a.example.org:2380,b=http://A.example.org:2380\n", 2, []string{"FILE:5: initial-cluster", "member a and of member b"}},
		{"https without TLS", "initial-cluster: a=https://a.example.org:2380\n", 1, []string{"FILE:5: initial-cluster", "peers speak http"}},
		{"own URL listed", "initial-cluster: " + three + "\ninitial-advertise-peer-urls: http://b.example.org:2380\n", 3, nil},
		{"own URL not listed", "initial-cluster: " + three + "\ninitial-advertise-peer-urls: http://d.example.org:2380\n", 3, []string{"FILE:5: initial-cluster", "FILE:6: initial-advertise-peer-urls", "http://d.example.org:2380"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c, file, err := load(t, static+tt.file, nil)
			if err != nil {
				t.Fatal(err)
			}
			expect(t, c.CheckInitialAlone(tt.size), file, tt.want)
		})
	}
}

// CF-01: edits of an initialised member's configuration are named, not ignored
// in silence.
func TestDifferences(t *testing.T) {
	stored := Stored{
		Name: "a", PeerURLs: []string{"http://a.example.org:2380"},
		Members:  []Peer{{"a", []string{"http://a.example.org:2380"}}, {"b", []string{"http://b.example.org:2380"}}},
		MemberID: "1f", ComputedID: "1f",
	}
	tests := []struct {
		name, file string
		computed   string
		want       []string
	}{
		{"nothing said", "", "1f", nil},
		{"all equal", "name: a\ninitial-advertise-peer-urls: http://a.example.org:2380\ninitial-cluster: a=http://a.example.org:2380,b=http://b.example.org:2380\n", "1f", nil},
		{"token", "", "2e", []string{"initial-cluster-token t1"}},
		{"ID that follows from nothing", "", "", nil},
		{"extra member", "initial-cluster: a=http://a.example.org:2380,b=http://b.example.org:2380,c=http://c.example.org:2380\n", "1f", []string{"initial-cluster a=http://a.example.org:2380,b=http://b.example.org:2380,c=http://c.example.org:2380"}},
		{"name and urls", "name: b\ninitial-advertise-peer-urls: http://b.example.org:2380\nadvertise-client-urls: http://b.example.org:2379\n", "1f", []string{"name b", "initial-advertise-peer-urls http://b.example.org:2380"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c, file, err := load(t, static+tt.file, nil)
			if err != nil {
				t.Fatal(err)
			}
			stored.ComputedID = tt.computed
			var got []string
			for _, d := range c.Differences(stored) {
				got = append(got, d.Key+" "+d.Configured)
				if s := d.String(); !strings.Contains(s, "stored value is used") || !strings.HasPrefix(s, file+":") {
					t.Errorf("warning %q", s)
				}
			}
			if !slices.Equal(got, tt.want) {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}
