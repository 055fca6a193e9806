BEGIN TRANSACTION;
CREATE TABLE alembic_version (
	version_num VARCHAR(32) NOT NULL, 
	CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num)
);
INSERT INTO "alembic_version" VALUES('0004');
CREATE TABLE audit (
	id INTEGER NOT NULL, 
	at DOUBLE NOT NULL, 
	actor VARCHAR(200) NOT NULL, 
	action VARCHAR(40) NOT NULL, 
	population VARCHAR(100), 
	run VARCHAR(40), 
	round INTEGER, 
	event VARCHAR(32) NOT NULL, 
	body TEXT NOT NULL, 
	previous VARCHAR(64) NOT NULL, 
	hash VARCHAR(64) NOT NULL, 
	CONSTRAINT pk_audit PRIMARY KEY (id), 
	CONSTRAINT uq_audit_event UNIQUE (event)
);
INSERT INTO "audit" VALUES(1,1.79532518546804475785e+09,'officer','population.create','people',NULL,NULL,'3b13368f9372dde5c57ca5b01adf7b7e','{"accounting":"individual","adjacency":"zero_out","delta":1e-06,"epsilon":4.0,"leak":8.673617379884035e-25,"salt":"99cd169b0f40e321990a8d2473d7d1e75a219109df513ccda0e24d5ff955bac1","simulated":false,"unit":"user"}','af9da0730d9339d4abeb5292eacafd0d8600d7e8351f253bdc549b1e7aa09dd7','6ae726a4022c307758f0c19b094ccfa6253ef5eac9a4cff1ecd0943f0cbef4bd');
INSERT INTO "audit" VALUES(2,1.79532518551141500465e+09,'officer','population.raise','people',NULL,NULL,'1d3f52f44735763b719b5f24193f9c30','{"delta":1e-06,"epsilon":5.0,"reason":"agreed on 3 May"}','6ae726a4022c307758f0c19b094ccfa6253ef5eac9a4cff1ecd0943f0cbef4bd','a01e9e56607a20de5abc99ecb8c62225f513d8116b8d30cef4b3cf3fe7710bf8');
INSERT INTO "audit" VALUES(3,1.7953251855212566852e+09,'officer','population.create','others',NULL,NULL,'8b5fd1f8039d010ef3227ad1c8943984','{"accounting":"worst-case","adjacency":"add_remove","delta":1e-06,"epsilon":1.0,"leak":1e-07,"salt":"5211a31fa79fcbf66cef391e09990603f5930cae3a09e128e4ba8d60a1a301b8","simulated":false,"unit":"user"}','a01e9e56607a20de5abc99ecb8c62225f513d8116b8d30cef4b3cf3fe7710bf8','5133fe954bae4c13f8e57a7422504c0f8cac3e06bb4ea70d055c93b3ac22ce8d');
INSERT INTO "audit" VALUES(4,1795325185.53994,'officer','population.close','others',NULL,NULL,'4e55ba2eb2bc401df2ec13922bf53422','{}','5133fe954bae4c13f8e57a7422504c0f8cac3e06bb4ea70d055c93b3ac22ce8d','ecf906dbe6fe7a5927de517ebdd60e1027c414fa4ef31c04de33b23a3dac19a9');
INSERT INTO "audit" VALUES(5,1795325185.54741,'officer','token.create',NULL,NULL,NULL,'5c6d3b23091a8b4005d4211377268452','{"digest":"61de8c58cb4e81689b4d6ebf802c42c82fc44461078ebb659b0898a185e7f701","expires_at":null,"id":"0a8a0a1fc4f1","name":"page","scopes":["read"]}','ecf906dbe6fe7a5927de517ebdd60e1027c414fa4ef31c04de33b23a3dac19a9','9f65edc0012f38933e572b14dec04083b5016109bf2144e98fb3d4ceca7cc3c7');
INSERT INTO "audit" VALUES(6,1.79532518555412960053e+09,'officer','token.create',NULL,NULL,NULL,'b79c87d64c6bcb6672237090210fdeb8','{"digest":"97204d7a1990e67807c0e28340c9503e4257ac323b7dd86d2c06cbe011f2139c","expires_at":null,"id":"339947bbd37e","name":"office","scopes":["read","admin"]}','9f65edc0012f38933e572b14dec04083b5016109bf2144e98fb3d4ceca7cc3c7','aa2954efbf0c18af5f15d446c08045ecccdf29a9c36aeb232001c41236abe939');
INSERT INTO "audit" VALUES(7,1.79532518555826497074e+09,'officer','token.revoke',NULL,NULL,NULL,'e61f27c126ca057d2067e666b26d3de6','{"id":"0a8a0a1fc4f1"}','aa2954efbf0c18af5f15d446c08045ecccdf29a9c36aeb232001c41236abe939','01771431b42c67673c228c3879c4aab9d3f674acc9acb0a59e9fedeb0d8492b1');
INSERT INTO "audit" VALUES(8,1.79532518556228733066e+09,'test','run.start','people','a02b3f8f1ace',NULL,'ed6a88d54260759d83213e71068b66a2','{"accounting":"worst-case","format":1,"key_commitment":"ed0e347f1665613c093ac616da1ce34431fc1d6e1f8d4812e92ccc9e546188c7","largest":0,"most":null,"noise_source":"secure","plan":"23fe8672393dcb798a10a5f2c6f2aaa3e74bfa803fddbaff68978bd199087412","plan_digest":"23fe8672393dcb798a10a5f2c6f2aaa3e74bfa803fddbaff68978bd199087412","planned":"{\"mu_squared\":0.6400000000000001,\"sampled\":[]}","price":"{\"leak\":0.0,\"mu_squared\":0.6400000000000001}","rounds":3,"strategy":null,"trust_node_ids":false}','01771431b42c67673c228c3879c4aab9d3f674acc9acb0a59e9fedeb0d8492b1','adaef58af6c928c00de16b77f933e4e05b569ea02d921e93ed6077291dd96f5e');
INSERT INTO "audit" VALUES(9,1.79532518558614039416e+09,'run a02b3f8f1ace','users.register','people','a02b3f8f1ace',NULL,'00c5370620b252ce935e6e74a00605be','{"count":40,"first":0,"hashes":"58ad14f5082ff27bace4e803eefcdad168b336a1b59716a09e26ffbbfb2016e5"}','adaef58af6c928c00de16b77f933e4e05b569ea02d921e93ed6077291dd96f5e','c366d34e30fcb1abe099c54ccc803bd3f6c7410d461deb1161a9db68b1e1769f');
INSERT INTO "audit" VALUES(10,1.79532518559558653837e+09,'run a02b3f8f1ace','round.open','people','a02b3f8f1ace',0,'efacece4229a5f8c1baf2130bdcf41ec','{"attempt":0,"cohort":"6d34f835e6ad2facc813b330ee06c8f039ddefab820d8fd5c9d7554a8af34f24","cohort_size":3,"noise_row":0}','c366d34e30fcb1abe099c54ccc803bd3f6c7410d461deb1161a9db68b1e1769f','72396a2385bd1993046258a8c7b9ff8a74e864b4ac9d7e091c57668b03e4626b');
INSERT INTO "audit" VALUES(11,1.79532518561617827415e+09,'run a02b3f8f1ace','round.commit','people','a02b3f8f1ace',0,'b9851f57995b8aef98e1249f8e2064c7','{"attempt":0,"checkpoint":"5feceb66ffc86f38d952786c6d696c79c2dbc239dd4e91b46729d73a27fb57e9","epsilon":0.8341175486240524,"noise_row":0,"nonce":"00000000000000000000000000000000","participant_count":3,"participants":"6d34f835e6ad2facc813b330ee06c8f039ddefab820d8fd5c9d7554a8af34f24","rejects":{"nan":1},"reports":9,"spent":"{\"mu_squared\":0.04,\"sampled\":[]}","statistics":"167e0e85e91103e12971535ea824ce7b4066bfa115fb5a7fd6e171edbb2ecf39"}','72396a2385bd1993046258a8c7b9ff8a74e864b4ac9d7e091c57668b03e4626b','ed3bb9d5316931b26058024513f0e6ce95efbb62378fb004cac7e15002da040a');
INSERT INTO "audit" VALUES(12,1.79532518564250612256e+09,'run a02b3f8f1ace','round.open','people','a02b3f8f1ace',1,'e5252ae2022fe1d897facd927f0fd94b','{"attempt":0,"cohort":"e2bbd168851bb149198913ed70a0e3a4e097711896fce3f22d46cdcfbcdc8928","cohort_size":2,"noise_row":1}','ed3bb9d5316931b26058024513f0e6ce95efbb62378fb004cac7e15002da040a','d9ff7d3a90b04675c0442db963b595344f8bfe942904a31a05d3c03153917e59');
INSERT INTO "audit" VALUES(13,1.79532518565160036086e+09,'run a02b3f8f1ace','round.commit','people','a02b3f8f1ace',1,'5e8f68784d5d4d3d1b9b94dbb273f097','{"attempt":0,"checkpoint":"6b86b273ff34fce19d6b804eff5a3f5747ada4eaa22f1d49c01e52ddb7875b4b","epsilon":1.2119674527380742,"noise_row":1,"nonce":"01010101010101010101010101010101","participant_count":2,"participants":"e2bbd168851bb149198913ed70a0e3a4e097711896fce3f22d46cdcfbcdc8928","rejects":{"nan":1},"reports":9,"spent":"{\"mu_squared\":0.08,\"sampled\":[]}","statistics":"167e0e85e91103e12971535ea824ce7b4066bfa115fb5a7fd6e171edbb2ecf39"}','d9ff7d3a90b04675c0442db963b595344f8bfe942904a31a05d3c03153917e59','682d41c54919161d7dd1313de93c54537b3b7bf7aa7fce5ef5696bf2417678bf');
INSERT INTO "audit" VALUES(14,1.79532518565853309636e+09,'run a02b3f8f1ace','round.open','people','a02b3f8f1ace',2,'d0d5f90e77a412c0dff228b2078e3e3d','{"attempt":0,"cohort":"fa1c3c6acace2b51760a1764994cbef2af8aca213f79fffd5b6f2f77e293c036","cohort_size":1,"noise_row":2}','682d41c54919161d7dd1313de93c54537b3b7bf7aa7fce5ef5696bf2417678bf','10fd6da5e7a154a73c587ed1af6096b11caa35dbab76824ec202b447e652a253');
INSERT INTO "audit" VALUES(15,1.79532518566589355465e+09,'run a02b3f8f1ace','round.commit','people','a02b3f8f1ace',2,'46d1c3ea99abf2eb2603594b7317baf1','{"attempt":0,"checkpoint":"d4735e3a265e16eee03f59718b9b5d03019c07d8b6c51f90da3a666eec13ab35","epsilon":1.2119674527380742,"noise_row":2,"nonce":"02020202020202020202020202020202","participant_count":1,"participants":"fa1c3c6acace2b51760a1764994cbef2af8aca213f79fffd5b6f2f77e293c036","rejects":{"nan":1},"reports":9,"spent":"{\"mu_squared\":0.08,\"sampled\":[]}","statistics":"167e0e85e91103e12971535ea824ce7b4066bfa115fb5a7fd6e171edbb2ecf39"}','10fd6da5e7a154a73c587ed1af6096b11caa35dbab76824ec202b447e652a253','ffa6be2ae18611931a3d707ddf99bafaed8e006627f80b57e6242a4aefd3caf9');
INSERT INTO "audit" VALUES(16,1.79532518567040848735e+09,'a02b3f8f1ace','run.finish','people','a02b3f8f1ace',NULL,'c5df61c608867cbb9d0858f65ba05bac','{"message":"","settled":"{\"mu_squared\":0.08,\"sampled\":[]}","spent":"{\"mu_squared\":0.08,\"sampled\":[]}","state":"done"}','ffa6be2ae18611931a3d707ddf99bafaed8e006627f80b57e6242a4aefd3caf9','7d4f3edd183c2dad639fe038f275310e8fd74afbf8e4d289068f4c2151df9a38');
INSERT INTO "audit" VALUES(17,1.79532518568209981915e+09,'test','run.start','people','5cde40685734',NULL,'a1a83eecd6f2069e7ca9b25e86cec279','{"accounting":"worst-case","format":1,"key_commitment":"55ddc3a7202d4397984175d01c7b40b969be03ccaa3f8f59d9f17a4bbc6338bb","largest":0,"most":null,"noise_source":"secure","plan":"23fe8672393dcb798a10a5f2c6f2aaa3e74bfa803fddbaff68978bd199087412","plan_digest":"23fe8672393dcb798a10a5f2c6f2aaa3e74bfa803fddbaff68978bd199087412","planned":"{\"mu_squared\":0.04000000000000001,\"sampled\":[]}","price":"{\"leak\":0.0,\"mu_squared\":0.04000000000000001}","rounds":3,"strategy":null,"trust_node_ids":false}','7d4f3edd183c2dad639fe038f275310e8fd74afbf8e4d289068f4c2151df9a38','15c2b0f7cd022ac4028995471c6ba0d8b8cbfa4d8eba8292ee41fbdf3d6871f7');
INSERT INTO "audit" VALUES(18,1.79532518597511672967e+09,'run 5cde40685734','round.open','people','5cde40685734',0,'ff7fc9ddd02b1b413df21a32b47d85c7','{"attempt":0,"cohort":"46d2a2090f3ec57a778cdc017b0204dd3ffc97744a7e5d4e6c789b4b600073e2","cohort_size":2,"noise_row":0}','15c2b0f7cd022ac4028995471c6ba0d8b8cbfa4d8eba8292ee41fbdf3d6871f7','7ccf7ccaedde84620916057260ca23493812306c45ca79fb28fd75a60c831010');
INSERT INTO "audit" VALUES(19,1.79532518598259592055e+09,'run 5cde40685734','round.void','people','5cde40685734',0,'fb40ea5df90f5f397fe9af94a7e51fb7','{"attempt":0,"reason":"too few","rejects":{"shape":2},"reports":1}','7ccf7ccaedde84620916057260ca23493812306c45ca79fb28fd75a60c831010','87ecad3e449107c2645ed95b61243328756d2f98969446f1572ce05c72abefa7');
INSERT INTO "audit" VALUES(20,1.79532518598489379884e+09,'run 5cde40685734','round.open','people','5cde40685734',0,'056bc1b3fca433fab68e3b93678d989a','{"attempt":1,"cohort":"32a46748a9dc0aabef51e08210130c638172505c64dbf30b8e41b121e8f9ad9c","cohort_size":2,"noise_row":0}','87ecad3e449107c2645ed95b61243328756d2f98969446f1572ce05c72abefa7','5821f0875c756bd1137d8bbaf57b93475f7a1ca3a1e97c114a973279a4a94b11');
INSERT INTO "audit" VALUES(21,1.79532518599437761305e+09,'run 5cde40685734','round.commit','people','5cde40685734',0,'5549958045fab61e9a16c46e81d62655','{"attempt":1,"checkpoint":"d9298a10d1b0735837dc4bd85dac641b0f3cef27a47e5d53a54f2f3f5b2fcffa","epsilon":0.8341175486240524,"noise_row":0,"nonce":"09090909090909090909090909090909","participant_count":1,"participants":"b1fe78d56a7c62bb11dc790717a621b63e48f9689da5a720564dcd0d1bfb0ecf","rejects":{},"reports":0,"spent":"{\"mu_squared\":0.04000000000000001,\"sampled\":[]}","statistics":"44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"}','5821f0875c756bd1137d8bbaf57b93475f7a1ca3a1e97c114a973279a4a94b11','5d187d3c7117171f3b968597770f3b54d382b1fbcc69c01fa2f19c2d268b72ae');
INSERT INTO "audit" VALUES(22,1.79532518600134825704e+09,'run 5cde40685734','users.register','people','5cde40685734',NULL,'3e52b8653cc96eabdef6c23415dd35b6','{"count":10,"first":40,"hashes":"a6efd10fba34eac0c31092a25074727d2870e11f1737bd81d74fd97663d7cb3e"}','5d187d3c7117171f3b968597770f3b54d382b1fbcc69c01fa2f19c2d268b72ae','d875b832b47d78299d9771170cdf9889c7bf6931ec612eb292db6092d5425427');
INSERT INTO "audit" VALUES(23,1.79532518600898098942e+09,'run 5cde40685734','round.open','people','5cde40685734',1,'b07edef48c0e5382b206efc52575a2e1','{"attempt":0,"cohort":"2745bb9e9a5bde592558d3361d9f49ca8ac3e0292421d84ae954a11a60548144","cohort_size":2,"noise_row":1}','d875b832b47d78299d9771170cdf9889c7bf6931ec612eb292db6092d5425427','786d9f29c94dff276d63af75100d5b15284a3119f0f51f83c98ebf6a02a2326e');
CREATE TABLE charges (
	id INTEGER NOT NULL, 
	population_id INTEGER NOT NULL, 
	"key" VARCHAR(100) NOT NULL, 
	who VARCHAR(200) NOT NULL, 
	what VARCHAR(200) NOT NULL, 
	why TEXT NOT NULL, 
	loss TEXT NOT NULL, 
	price TEXT NOT NULL, 
	state VARCHAR(12) NOT NULL, 
	reserved_at DOUBLE NOT NULL, 
	closed_at DOUBLE, 
	CONSTRAINT pk_charges PRIMARY KEY (id), 
	CONSTRAINT fk_charges_population_id FOREIGN KEY(population_id) REFERENCES populations (id), 
	CONSTRAINT uq_charges_population_id_key UNIQUE (population_id, "key")
);
CREATE TABLE head (
	id INTEGER NOT NULL, 
	ledger VARCHAR(32) NOT NULL, 
	count BIGINT NOT NULL, 
	hash VARCHAR(64) NOT NULL, 
	CONSTRAINT pk_head PRIMARY KEY (id), 
	CONSTRAINT ck_head_one_row CHECK (id = 1)
);
INSERT INTO "head" VALUES(1,'53fe0bba1c6a4d9ff194f052afe4e232',23,'786d9f29c94dff276d63af75100d5b15284a3119f0f51f83c98ebf6a02a2326e');
CREATE TABLE leases (
	run_seq INTEGER NOT NULL, 
	holder VARCHAR(300) NOT NULL, 
	token BIGINT NOT NULL, 
	beat BIGINT NOT NULL, 
	renewed_at DOUBLE NOT NULL, 
	seconds DOUBLE NOT NULL, 
	CONSTRAINT pk_leases PRIMARY KEY (run_seq), 
	CONSTRAINT fk_leases_run_seq FOREIGN KEY(run_seq) REFERENCES runs (seq)
);
INSERT INTO "leases" VALUES(1,'',2,8,1.79532518567040848735e+09,30.0);
INSERT INTO "leases" VALUES(2,'test',1,6,1.79532518600898098942e+09,30.0);
CREATE TABLE odometers (
	population_id INTEGER NOT NULL, 
	first BIGINT NOT NULL, 
	count INTEGER NOT NULL, 
	spent BLOB NOT NULL, 
	CONSTRAINT pk_odometers PRIMARY KEY (population_id, first), 
	CONSTRAINT fk_odometers_population_id FOREIGN KEY(population_id) REFERENCES populations (id)
);
CREATE TABLE participations (
	round_id INTEGER NOT NULL, 
	run_seq INTEGER NOT NULL, 
	"index" INTEGER NOT NULL, 
	count INTEGER NOT NULL, 
	users BLOB NOT NULL, charges BLOB, 
	CONSTRAINT pk_participations PRIMARY KEY (round_id), 
	CONSTRAINT fk_participations_round_id FOREIGN KEY(round_id) REFERENCES rounds (id), 
	CONSTRAINT fk_participations_run_seq FOREIGN KEY(run_seq) REFERENCES runs (seq), 
	CONSTRAINT uq_participations_run_seq_index UNIQUE (run_seq, "index")
);
INSERT INTO "participations" VALUES(1,1,0,3,X'0178DA636064040000060003',NULL);
INSERT INTO "participations" VALUES(2,1,1,2,X'0178DA6362040000070004',NULL);
INSERT INTO "participations" VALUES(3,1,2,1,X'0178DA63010000050005',NULL);
INSERT INTO "participations" VALUES(5,2,0,1,X'0178DA63050000060006',NULL);
CREATE TABLE pledges (
	run_seq INTEGER NOT NULL, 
	first BIGINT NOT NULL, 
	count INTEGER NOT NULL, 
	caps BLOB NOT NULL, 
	CONSTRAINT pk_pledges PRIMARY KEY (run_seq, first), 
	CONSTRAINT fk_pledges_run_seq FOREIGN KEY(run_seq) REFERENCES runs (seq)
);
CREATE TABLE populations (
	id INTEGER NOT NULL, 
	name VARCHAR(100) NOT NULL, 
	epsilon DOUBLE NOT NULL, 
	delta DOUBLE NOT NULL, 
	adjacency VARCHAR(20) NOT NULL, 
	unit VARCHAR(100) NOT NULL, 
	simulated BOOLEAN NOT NULL, 
	state VARCHAR(20) NOT NULL, 
	salt BLOB NOT NULL, 
	users BIGINT NOT NULL, 
	settled TEXT NOT NULL, 
	created_at DOUBLE NOT NULL, 
	created_by VARCHAR(200) NOT NULL, leak DOUBLE DEFAULT '0' NOT NULL, accounting VARCHAR(12) DEFAULT 'worst-case' NOT NULL, 
	CONSTRAINT pk_populations PRIMARY KEY (id), 
	CONSTRAINT ck_populations_budget CHECK (epsilon > 0 AND delta > 0 AND delta < 1), 
	CONSTRAINT uq_populations_name UNIQUE (name)
);
INSERT INTO "populations" VALUES(1,'people',5.0,1.0e-06,'zero_out','user',0,'open',X'D6E37C6EFDEF7E025A253EE6FAE868FE',50,'{"mu_squared":0.08,"sampled":[]}',1.79532518546804475785e+09,'officer',8.67361737988403508001e-25,'individual');
INSERT INTO "populations" VALUES(2,'others',1.0,1.0e-06,'add_remove','user',0,'closed',X'D69FE53AF4132EC3A78DEFB2998CFDE5',0,'{"mu_squared":0.0,"sampled":[]}',1.7953251855212566852e+09,'officer',1.0e-07,'worst-case');
CREATE TABLE rounds (
	id INTEGER NOT NULL, 
	run_seq INTEGER NOT NULL, 
	"index" INTEGER NOT NULL, 
	attempt INTEGER NOT NULL, 
	noise_row INTEGER NOT NULL, 
	state VARCHAR(12) NOT NULL, 
	cohort BLOB, 
	cohort_size INTEGER NOT NULL, 
	reports INTEGER NOT NULL, 
	participants INTEGER NOT NULL, 
	spent TEXT, 
	epsilon DOUBLE, 
	checkpoint VARCHAR(64), 
	statistics TEXT NOT NULL, 
	rejects TEXT NOT NULL, 
	reason TEXT NOT NULL, 
	opened_at DOUBLE NOT NULL, 
	closed_at DOUBLE, nonce VARCHAR(32), 
	CONSTRAINT pk_rounds PRIMARY KEY (id), 
	CONSTRAINT fk_rounds_run_seq FOREIGN KEY(run_seq) REFERENCES runs (seq), 
	CONSTRAINT uq_rounds_run_seq_index_attempt UNIQUE (run_seq, "index", attempt)
);
INSERT INTO "rounds" VALUES(1,1,0,0,0,'committed',NULL,3,9,3,'{"mu_squared":0.04,"sampled":[]}',8.34117548624052407291e-01,'5feceb66ffc86f38d952786c6d696c79c2dbc239dd4e91b46729d73a27fb57e9','{"accuracy":0.5}','{"nan":1}','',1.79532518559558653837e+09,1.79532518561617827415e+09,'00000000000000000000000000000000');
INSERT INTO "rounds" VALUES(2,1,1,0,1,'committed',NULL,2,9,2,'{"mu_squared":0.08,"sampled":[]}',1.21196745273807415799e+00,'6b86b273ff34fce19d6b804eff5a3f5747ada4eaa22f1d49c01e52ddb7875b4b','{"accuracy":0.5}','{"nan":1}','',1.79532518564250612256e+09,1.79532518565160036086e+09,'01010101010101010101010101010101');
INSERT INTO "rounds" VALUES(3,1,2,0,2,'committed',NULL,1,9,1,'{"mu_squared":0.08,"sampled":[]}',1.21196745273807415799e+00,'d4735e3a265e16eee03f59718b9b5d03019c07d8b6c51f90da3a666eec13ab35','{"accuracy":0.5}','{"nan":1}','',1.79532518565853309636e+09,1.79532518566589355465e+09,'02020202020202020202020202020202');
INSERT INTO "rounds" VALUES(4,2,0,0,0,'void',NULL,2,1,0,NULL,NULL,NULL,'{}','{"shape":2}','too few',1.79532518597511672967e+09,1.79532518598259592055e+09,NULL);
INSERT INTO "rounds" VALUES(5,2,0,1,0,'committed',NULL,2,0,1,'{"mu_squared":0.04000000000000001,"sampled":[]}',8.34117548624052407291e-01,'d9298a10d1b0735837dc4bd85dac641b0f3cef27a47e5d53a54f2f3f5b2fcffa','{}','{}','',1.79532518598489379884e+09,1.79532518599437761305e+09,'09090909090909090909090909090909');
INSERT INTO "rounds" VALUES(6,2,1,0,1,'open',X'0178DAE36004000013000A',2,0,0,NULL,NULL,NULL,'{}','{}','',1.79532518600898098942e+09,NULL,NULL);
CREATE TABLE runs (
	seq INTEGER NOT NULL, 
	id VARCHAR(40) NOT NULL, 
	population_id INTEGER NOT NULL, 
	"plan" TEXT NOT NULL, 
	plan_digest VARCHAR(128) NOT NULL, 
	rounds INTEGER NOT NULL, 
	planned TEXT NOT NULL, 
	spent TEXT NOT NULL, 
	noise_source VARCHAR(40) NOT NULL, 
	key_commitment VARCHAR(128) NOT NULL, 
	trust_node_ids BOOLEAN NOT NULL, 
	state VARCHAR(20) NOT NULL, 
	request VARCHAR(20), 
	message TEXT NOT NULL, 
	next_round INTEGER NOT NULL, 
	checkpoint VARCHAR(64), 
	started_at DOUBLE NOT NULL, 
	started_by VARCHAR(200) NOT NULL, 
	ended_at DOUBLE, price TEXT, format INTEGER DEFAULT '0' NOT NULL, strategy VARCHAR(64), accounting VARCHAR(12) DEFAULT 'worst-case' NOT NULL, most BIGINT, 
	CONSTRAINT pk_runs PRIMARY KEY (seq), 
	CONSTRAINT fk_runs_population_id FOREIGN KEY(population_id) REFERENCES populations (id), 
	CONSTRAINT uq_runs_id UNIQUE (id)
);
INSERT INTO "runs" VALUES(1,'a02b3f8f1ace',1,'{"privacy": {"adjacency": "zero_out"}, "run": {"rounds": 4}}','23fe8672393dcb798a10a5f2c6f2aaa3e74bfa803fddbaff68978bd199087412',3,'{"mu_squared":0.6400000000000001,"sampled":[]}','{"mu_squared":0.08,"sampled":[]}','secure','ed0e347f1665613c093ac616da1ce34431fc1d6e1f8d4812e92ccc9e546188c7',0,'done',NULL,'',3,'d4735e3a265e16eee03f59718b9b5d03019c07d8b6c51f90da3a666eec13ab35',1.79532518556228733066e+09,'test',1.79532518567040848735e+09,'{"leak":0.0,"mu_squared":0.6400000000000001}',1,NULL,'worst-case',NULL);
INSERT INTO "runs" VALUES(2,'5cde40685734',1,'{"privacy": {"adjacency": "zero_out"}, "run": {"rounds": 4}}','23fe8672393dcb798a10a5f2c6f2aaa3e74bfa803fddbaff68978bd199087412',3,'{"mu_squared":0.04000000000000001,"sampled":[]}','{"mu_squared":0.04000000000000001,"sampled":[]}','secure','55ddc3a7202d4397984175d01c7b40b969be03ccaa3f8f59d9f17a4bbc6338bb',0,'running',NULL,'',1,'d9298a10d1b0735837dc4bd85dac641b0f3cef27a47e5d53a54f2f3f5b2fcffa',1.79532518568209981915e+09,'test',NULL,'{"leak":0.0,"mu_squared":0.04000000000000001}',1,NULL,'worst-case',NULL);
CREATE TABLE tokens (
	id VARCHAR(20) NOT NULL, 
	name VARCHAR(200) NOT NULL, 
	digest VARCHAR(64) NOT NULL, 
	scopes VARCHAR(100) NOT NULL, 
	created_at DOUBLE NOT NULL, 
	created_by VARCHAR(200) NOT NULL, 
	expires_at DOUBLE, 
	revoked_at DOUBLE, 
	CONSTRAINT pk_tokens PRIMARY KEY (id), 
	CONSTRAINT uq_tokens_digest UNIQUE (digest)
);
INSERT INTO "tokens" VALUES('0a8a0a1fc4f1','page','61de8c58cb4e81689b4d6ebf802c42c82fc44461078ebb659b0898a185e7f701','read',1795325185.54741,'officer',NULL,1.79532518555826497074e+09);
INSERT INTO "tokens" VALUES('339947bbd37e','office','97204d7a1990e67807c0e28340c9503e4257ac323b7dd86d2c06cbe011f2139c','read admin',1.79532518555412960053e+09,'officer',NULL,NULL);
CREATE TABLE users (
	population_id INTEGER NOT NULL, 
	first BIGINT NOT NULL, 
	count INTEGER NOT NULL, 
	hashes BLOB NOT NULL, 
	CONSTRAINT pk_users PRIMARY KEY (population_id, first), 
	CONSTRAINT fk_users_population_id FOREIGN KEY(population_id) REFERENCES populations (id)
);
INSERT INTO "users" VALUES(1,0,40,X'CB9DF7D0E1467B4AA48502C5BA2A3158305D2DF8FD947D77BAEC825916AADD10610627ACAFE0801FA44E302DF5D47996B400AFCB7B53EE0DFD4877F493CA75E689BEB684EB26AC754CE29D283A4141F953B1E4219A4A52A5F4B528E3FE447F494ECC7C67A280ED9529360D3CED31FBCBE9BC6B71B778D0662FEE000A7DDCC5CD6E499D3B725D7874ED55B0848E0D3DD6EB3F6656315D07F0DE762AD33FF533DEAD319526592CE6EF46F68D6AB8DA8772BBE94271F194B1861E1DEA6F324769D64920C5AFDCC0F742D8F225F00ED3EEC46B0CF4F1E8A9579D1B9235C68F859E41FCD96051C2FAB764C2B1CA833A2A0E55893D008EA3E3898D5F10C3EA8E400838B4FCF5A4DBEDECCCED5CBF31DC9529BC3002008020C8EF3E422D9865D4CEC1822F3FBB881C86E2E7CE8905CCF861D64D50704424A7F6EC38F110C26BDE6A94D0');
INSERT INTO "users" VALUES(1,40,10,X'E031B986FC1EB4910E93AED2C5129C7D5DF290EE45C345A02B8CCC1563ECD2F6C16A1A2CDD99AF29784DC47279EBC818768DEE41A96B8A57FF76C736C114E0C6182BAA71E2F12AAC1F2CAB8724C8A331');
CREATE INDEX ix_audit_population ON audit (population);
CREATE INDEX ix_audit_run ON audit (run);
CREATE INDEX ix_runs_population_id_state ON runs (population_id, state);
CREATE UNIQUE INDEX uq_runs_key ON runs (key_commitment) WHERE noise_source <> 'seeded';
CREATE UNIQUE INDEX uq_rounds_committed_noise_row ON rounds (run_seq, noise_row) WHERE state = 'committed';
CREATE UNIQUE INDEX uq_rounds_one_open ON rounds (run_seq) WHERE state = 'open';
CREATE TRIGGER audit_append BEFORE INSERT ON audit WHEN NEW.id <> (SELECT count FROM head) + 1 BEGIN SELECT RAISE(ABORT, 'the audit log only grows at its end'); END;
CREATE TRIGGER audit_keep BEFORE UPDATE ON audit BEGIN SELECT RAISE(ABORT, 'the audit log is append-only'); END;
CREATE TRIGGER audit_stay BEFORE DELETE ON audit BEGIN SELECT RAISE(ABORT, 'the audit log is append-only'); END;
CREATE TRIGGER head_forward BEFORE UPDATE ON head WHEN NEW.count <> OLD.count + 1 BEGIN SELECT RAISE(ABORT, 'the audit log never gets shorter'); END;
CREATE TRIGGER head_stay BEFORE DELETE ON head BEGIN SELECT RAISE(ABORT, 'the audit log never gets shorter'); END;
CREATE TRIGGER rounds_keep BEFORE UPDATE ON rounds WHEN OLD.state <> 'open' BEGIN SELECT RAISE(ABORT, 'a closed round does not change'); END;
CREATE TRIGGER rounds_stay BEFORE DELETE ON rounds BEGIN SELECT RAISE(ABORT, 'rounds are not removed'); END;
CREATE TRIGGER participations_keep BEFORE UPDATE ON participations BEGIN SELECT RAISE(ABORT, 'participation does not change'); END;
CREATE TRIGGER participations_stay BEFORE DELETE ON participations BEGIN SELECT RAISE(ABORT, 'participation does not change'); END;
CREATE TRIGGER users_keep BEFORE UPDATE ON users BEGIN SELECT RAISE(ABORT, 'users are not renumbered'); END;
CREATE TRIGGER users_stay BEFORE DELETE ON users BEGIN SELECT RAISE(ABORT, 'users are not renumbered'); END;
CREATE UNIQUE INDEX uq_rounds_nonce ON rounds (nonce);
COMMIT;
