# Installing, and what whoever runs the daemon gets beside the programs; included by the Makefile.

.PHONY: install uninstall man sbom deb

# ---- where things go -------------------------------------------------------------------------------------------------

# GNU's names and defaults; PREFIX is another name of prefix. DESTDIR stands before all of them and is compiled into
# nothing. A distribution gives prefix=/usr sysconfdir=/etc localstatedir=/var.
PREFIX ?= /usr/local
DESTDIR ?=
prefix = $(PREFIX)
exec_prefix = $(prefix)
bindir = $(exec_prefix)/bin
datarootdir = $(prefix)/share
datadir = $(datarootdir)
mandir = $(datarootdir)/man
bashcompdir = $(datarootdir)/bash-completion/completions
zshcompdir = $(datarootdir)/zsh/site-functions
systemdsystemunitdir = $(prefix)/lib/systemd/system
sysusersdir = $(prefix)/lib/sysusers.d
sysconfdir = $(prefix)/etc
localstatedir = $(prefix)/var

# Where the programs look for the shipped models and for the configuration.
DIRECTORIES = -DAFTD_DATADIR='"$(datadir)/aftd"' -DAFTD_SYSCONFDIR='"$(sysconfdir)/aftd"'

# What has them compiled into it is compiled anew when they change, as in `make && make install prefix=/usr`.
$(call objects,config/config config/config_print server/cli/open_model server/cli/models server/cli/main): $B/directories
$B/directories: FORCE
	@mkdir -p $(@D); printf '%s\n' $(DIRECTORIES) | cmp -s - $@ || printf '%s\n' $(DIRECTORIES) >$@

# ---- manual pages and completions ------------------------------------------------------------------------------------

# The files are in the repository, so that installing what was compiled for another machine runs nothing of it. They
# name the default directories, whichever are chosen here; installing puts those in their place.
PAGES := $(basename $(wildcard deploy/man/*.in))
COMPLETIONS := $(basename $(wildcard deploy/completion/*.in))
WRITERS := $B/deploy/man/pages $B/deploy/completion/completions
WRITER_OBJECTS := $(WRITERS:=.o) $B/deploy/template.o
$(WRITER_OBJECTS): override datadir := /usr/local/share
$(WRITER_OBJECTS): override sysconfdir := /usr/local/etc

$(WRITERS): %: %.o $B/deploy/template.o $(LIBRARY)
	$(call say,LINK)
	$(Q)$(CC) $(ALL_LDFLAGS) -o $@ $^ $(LIBS)

man: ## write manual pages and completions in deploy/ anew, from their templates and the tables of the code
	+@$(BUILD) $(WRITERS)
	@for page in $(PAGES); do $B/deploy/man/pages $$page.in >$B/deploy/page && mv $B/deploy/page $$page || exit 1; done
	@for script in $(COMPLETIONS); do \
	    $B/deploy/completion/completions $$script.in >$B/deploy/script && mv $B/deploy/script $$script || exit 1; done

# ---- installing ------------------------------------------------------------------------------------------------------

# FROM=TO: what is copied as it is, and texts in which directories are replaced.
SHIPPED = $(foreach file,$(wildcard weights/models/*.md weights/models/*/*),$(file)=$(datadir)/aftd/$(file:weights/%=%)) \
    $(foreach file,$(wildcard deploy/prometheus/*.yml deploy/grafana/*.json deploy/grafana/*/*/* \
        deploy/haproxy/*.cfg deploy/nginx/*.conf deploy/nginx/*/*.conf), \
        $(file)=$(datadir)/aftd/$(file:deploy/%=%))
TEXTS = $(foreach page,$(PAGES),$(page)=$(mandir)/man$(patsubst .%,%,$(suffix $(page)))/$(notdir $(page))) \
    $(foreach script,$(filter %.bash,$(COMPLETIONS)),$(script)=$(bashcompdir)/$(basename $(notdir $(script)))) \
    $(foreach script,$(filter-out %.bash,$(COMPLETIONS)),$(script)=$(zshcompdir)/$(notdir $(script))) \
    $(foreach unit,$(wildcard deploy/systemd/*.service deploy/systemd/*.socket), \
        $(unit)=$(systemdsystemunitdir)/$(notdir $(unit))) \
    $(patsubst %,%=$(sysusersdir)/aftd.conf,$(wildcard deploy/systemd/sysusers.conf))
# Units name the directories of a distribution, for they are for systems that have one. Their states are systemd's.
DIRECTORIES_IN_TEXTS = -e 's|/usr/local/share/aftd|$(datadir)/aftd|g' -e 's|/usr/local/etc/aftd|$(sysconfdir)/aftd|g' \
    -e 's|=/usr/bin/aftd --config /etc/aftd/|=$(bindir)/aftd --config $(sysconfdir)/aftd/|'
# The tree's configuration, and where the shipped models are: the default is relative, to the tree.
INSTALLED_CONFIG = sed '1a\    "models_dir": "$(datadir)/aftd/models",' config/aftd.json
CONFIG_FILE = $(DESTDIR)$(sysconfdir)/aftd/aftd.json
OWN_MODELS = $(DESTDIR)$(localstatedir)/lib/aftd/models

install: all ## install by GNU's directory variables (prefix=/usr/local) under DESTDIR; an edited configuration stays
	install -d $(DESTDIR)$(bindir) $(OWN_MODELS)
	install -m 755 $B/aftd $B/aft $(DESTDIR)$(bindir)
	@for pair in $(SHIPPED); do \
	    echo "install $${pair#*=}"; install -D -m 644 $${pair%%=*} $(DESTDIR)$${pair#*=} || exit 1; done
	@for pair in $(TEXTS); do \
	    echo "install $${pair#*=}"; install -D -m 644 $${pair%%=*} $(DESTDIR)$${pair#*=} && \
	    sed -i $(DIRECTORIES_IN_TEXTS) $(DESTDIR)$${pair#*=} || exit 1; done
	@if [ -e $(CONFIG_FILE) ]; then \
	    $(INSTALLED_CONFIG) | cmp -s - $(CONFIG_FILE) || echo "$(CONFIG_FILE) is no longer the shipped one and stays"; \
	else echo "install $(sysconfdir)/aftd/aftd.json"; \
	    install -D -m 644 config/aftd.json $(CONFIG_FILE) && $(INSTALLED_CONFIG) >$(CONFIG_FILE); fi

# Folders of aftd's own go if nothing is left in them: models and settings of others stay.
uninstall: ## remove what install put there, but no configuration that was edited and no other models
	rm -f $(DESTDIR)$(bindir)/aftd $(DESTDIR)$(bindir)/aft
	@for pair in $(SHIPPED) $(TEXTS); do rm -f $(DESTDIR)$${pair#*=} || exit 1; done
	@if [ -e $(CONFIG_FILE) ] && $(INSTALLED_CONFIG) | cmp -s - $(CONFIG_FILE); then rm -f $(CONFIG_FILE); fi
	@find $(foreach dir,$(datadir) $(sysconfdir) $(localstatedir)/lib,$(DESTDIR)$(dir)/aftd) \
	    -depth -type d -empty -delete 2>/dev/null || :
	@if [ -e $(CONFIG_FILE) ]; then echo "$(CONFIG_FILE) was edited and stays"; fi

# ---- packages --------------------------------------------------------------------------------------------------------

DEPS_DEB := debhelper dpkg-dev python3

.PHONY: deps-deb
deps-deb: deps $(if $(filter arm64,$(VARIANT)),deps-arm64) ## install what building Debian packages needs
	$(call install,$(DEPS_DEB))

deb: deps-deb ## Debian packages of the last commit in build/; with VARIANT=arm64, for arm64
	@BUILD_PACKAGES='$(DEPS_BUILD)' deploy/deb.sh $B/deb $(if $(filter arm64,$(VARIANT)),$(SYSROOT)) && \
	    mv $B/deb/*.deb build/

sbom: programs ## what the programs link, as CycloneDX JSON: aftd.cdx.json beside them
	@SOURCE_DATE_EPOCH=$${SOURCE_DATE_EPOCH:-$$(git log -1 --format=%ct 2>/dev/null)} \
	    deploy/sbom.py --version $(VERSION) --triplet $(MACHINE) $(SBOM_FLAGS) $B/aftd $B/aft >$B/aftd.cdx.json
